"""What a reader of a page sees of its prose."""

import pytest

from openbook.plugins.dump.wikitext import prose_sections


@pytest.mark.parametrize(
    ("wikitext", "text"),
    [
        ("'''Bold''', ''italic'', '''''both''''' and l''''avion'''", "Bold, italic, both and lavion"),
        ("a [[link]], a [[target|shown]], [[:Category:Seas]], [[A#B]]", "a link, a shown, Category:Seas, A#B"),
        ("[[File:A.jpg|thumb|A [[sea]] view]]words[[Category:Seas]][[fr:Mer]]", "words"),
        ("see [https://a.example the page] and https://b.example", "see the page and https://b.example"),
        ('one<ref name="a">{{cite web|url=x}}</ref>, two<ref name="a" />, three<ref>b</ref>', "one, two, three"),
        ("{{Infobox person|name=A|born={{birth date|1900|1|1}}}}He lived.", "He lived."),
        ("{|\n! head\n|-\n| cell\n|}\nAfter.", "After."),
        ("<table><tr><td>cell</td></tr></table>After.", "After."),
        ("Before.\n* one\n* two ''b''\n# three\n; term\n: note\nAfter.", "Before.\n\n\n\n\n\nAfter."),
        ("== Head ==\nWords.\n=== Deeper ===\nMore.", "Words.\n\nMore."),
        ("a&nbsp;b &ndash; c &amp; d &#8364; &lt;e&gt;", "a\xa0b – c & d € <e>"),
        ("<nowiki>[[not]] a '''link''' &amp; so</nowiki>", "[[not]] a '''link''' & so"),
        ("where <math>E = mc^2</math> holds", "where E = mc^2 holds"),
        ("H<sub>2</sub>O<br/>x <!-- not shown --> y", "H2O\nx  y"),
        ("<gallery>A.jpg|x</gallery><timeline>y</timeline><syntaxhighlight lang=c>z</syntaxhighlight>w", "w"),
        ("{{convert|5|km|mi|abbr=on}} or {{convert|3|to|4|m|ft}}", "5 km or 3 to 4 m"),
        ("{{lang|fr|mot}}, {{lang-de|Wort|italic=no}}, {{nowrap|a b}}, {{circa|1500}}", "mot, Wort, a b, c. 1500"),
        ("Aaron ({{IPAc-en|a}}; born 1900) and ({{lang-x}}) so", "Aaron (born 1900) and so"),
        ("__NOTOC__Words __FORCETOC__", "Words"),
        ("#redirects? no, a number", ""),
        ("<div>never closed words", "never closed words"),
        ("a {{template never closed", "a template never closed"),
        ("a [[link never closed", "a link never closed"),
        ("{| class=x\n| a table never closed\nProse.", "Prose."),
        ("</ref></div>''' [[ ]] }} x", "x"),
        ("&#99999999999; &nosuch; a", "&#99999999999; &nosuch; a"),
    ],
)
def test_markup_becomes_prose(wikitext: str, text: str) -> None:
    assert "\n\n".join(section.text for section in prose_sections(wikitext)) == text


def test_namespaces_of_other_languages_show_no_text_once_they_are_known() -> None:
    text = "[[Datei:A.jpg|mini|Bild]][[Kategorie:See]]Ein See."
    (section,) = prose_sections(text, frozenset({"datei", "kategorie"}))
    assert section.text == "Ein See."
