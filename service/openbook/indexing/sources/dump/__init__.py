"""A MediaWiki dump as a source of passages: blocks of bytes, pages cut out of them, wikitext read in processes."""
