"""A folder of texts: one file, one article."""

import io
import multiprocessing
import os
from pathlib import Path

import pytest

from openbook.entities import Passage
from openbook.errors import SourceInvalid
from openbook.indexing.passage_fields import MOST_TITLE, fields_of
from openbook.indexing.sources import open_source
from openbook.indexing.sources.folder import LARGEST_FILE, SHOWN_FILES, FolderSource
from openbook.indexing.sources.folder_file import LARGEST_TEXT
from openbook.indexing.sources.lined_text import from_plain, words_of
from openbook.indexing.sources.markdown import MOST_ALIASES, MOST_DEPTH
from tests.fixtures.office import pdf
from tests.openbook.indexing.sources.marks import check_marks


def passage(path: str, number: int, title: str, text: str, section: str | None = None) -> Passage:
    return Passage(f"{path}#{number}", title, text, section=section, metadata=(("path", path),))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = {
        "b.txt": "words of b",
        "a_long_name.md": "no heading here",
        "deep/er/c.md": "\ufeff# The *sea* #\r\n\r\nIs deep.\n\n## Empty\n\n## More\n\nWords.",
        "deep/a.TXT": " ".join(["w"] * 130),
        "deep.txt": "beside the folder",
        ".hidden/x.txt": "hidden",
        ".x.md": "hidden",
        "picture.png": "no text",
        "empty.txt": " \n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8", newline="")
    (tmp_path / "cyrillic.txt").write_bytes("счёт".encode("cp1251"))
    return tmp_path


def test_every_text_below_a_folder_is_an_article_in_the_order_of_paths(folder: Path) -> None:
    source = open_source(str(folder), licence="CC0", snapshot_date="2020-01-01")
    assert list(source.passages()) == [
        passage("a_long_name.md", 0, "a long name", "no heading here"),
        passage("b.txt", 0, "b", "words of b"),
        passage("deep/a.TXT", 0, "a", " ".join(["w"] * 100)),
        passage("deep/a.TXT", 1, "a", " ".join(["w"] * 30)),
        passage("deep/er/c.md", 0, "The sea", "Is deep."),
        passage("deep/er/c.md", 1, "The sea", "More\n\nWords.", section="More"),
        passage("deep.txt", 0, "deep", "beside the folder"),
    ]
    assert source.skipped() == {"empty": 1, "undecodable": 1, "no reader for .png": 1}
    assert (source.name, source.licence, source.snapshot_date) == (folder.name, "CC0", "2020-01-01")


def test_what_follows_any_mark_is_exactly_the_rest(folder: Path) -> None:
    whole = check_marks(lambda: open_source(str(folder)), "gone.txt")
    assert whole[-1].read == open_source(str(folder)).total_bytes


def test_a_file_too_large_to_be_a_text_is_left_out_unread(tmp_path: Path) -> None:
    for name, size in (("huge.txt", LARGEST_TEXT), ("huge.pdf", LARGEST_FILE)):
        with (tmp_path / name).open("wb") as file:
            file.truncate(size + 1)
    source = open_source(str(tmp_path))
    assert list(source.passages()) == []
    assert source.skipped() == {"too large": 2}


def test_a_file_that_grows_after_it_was_listed_is_not_read_to_its_end(tmp_path: Path) -> None:
    source = open_source(str(written(tmp_path, a__txt="Text.")))
    with (tmp_path / "a.txt").open("r+b") as file:
        file.truncate(1 << 40)
    assert list(source.passages()) == []
    assert source.skipped() == {"too large": 1}


def test_a_link_brings_no_text_from_outside_of_the_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever may write a text could otherwise publish the admin token of the process that reads it."""
    secret, folder = tmp_path / "secret", tmp_path / "notes"
    for made in (secret, folder):
        made.mkdir()
    written(secret, key__md="---\ntoken: secret\n---\nsecret")
    written(folder, a__md="---\nn: 1\n---\nText.", b__txt="b", c__txt="c")
    (folder / "environ.md").symlink_to("/proc/self/environ")
    (folder / "itself.md").symlink_to(folder / "itself.md")
    (folder / "key.md").symlink_to(secret / "key.md")
    (folder / "sub").symlink_to(secret)
    os.mkfifo(folder / "pipe.md")
    source = open_source(str(folder))
    # one that becomes a link, and one that becomes a pipe, after they were listed
    (folder / "b.txt").unlink()
    (folder / "b.txt").symlink_to(secret / "key.md")
    (folder / "c.txt").unlink()
    os.mkfifo(folder / "c.txt")
    assert [one.text for one in source.passages()] == ["Text."]
    assert [one.metadata for one in source.passages()] == [(("n", 1), ("path", "a.md"))]
    assert source.skipped() == {"link": 4, "no file": 2}
    said, named, *_ = [record.message for record in caplog.records]
    assert said == f"{folder}: links are left out (3): 'environ.md', 'itself.md', 'key.md'"
    assert named.startswith(f"{folder}: left out: 'b.txt' (link), 'c.txt' (no file), 'environ.md' (link), ")
    check_marks(lambda: open_source(str(folder)))


def test_each_file_that_is_left_out_is_named_with_its_reason_and_of_many_the_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    written(tmp_path, **{f"{number:02}__xls": "x" for number in range(25)}, a__txt="", b__txt="Text.", makefile="")
    source = open_source(str(tmp_path))
    for _ in range(2):
        assert [one.text for one in source.passages()] == ["Text."]
        assert source.skipped() == {"no reader for .xls": 25, "empty": 1, "no reader for files without a kind": 1}
    [said] = [record.message for record in caplog.records]
    shown = ", ".join(f"'{number:02}.xls' (no reader for .xls)" for number in range(SHOWN_FILES))
    rest = "5 more (no reader for .xls), 1 more (empty), 1 more (no reader for files without a kind)"
    assert said == f"{tmp_path}: left out: {shown}, {rest}"


def test_a_file_whose_path_is_too_long_for_an_id_is_left_out(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["n" * 200] * 6)
    deep.mkdir(parents=True)
    written(deep, a__txt="Text.")
    source = open_source(str(written(tmp_path, b__txt="Text.")))
    assert [one.passage_id for one in source.passages()] == ["b.txt#0"]
    assert source.skipped() == {"path too long": 1}


def written(folder: Path, **files: str | bytes) -> Path:
    for name, content in files.items():
        path = folder / name.replace("__", ".")
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


FRONT = """---
title: "The sea: a story"
date: 2018-12-20 10:00:00 +02:00
url: https://example.org/sea
tags: [blue, deep]
draft: false
my-weight: 3
nested: {a: 1}
---
# A heading

Is deep.

## Life

Fish live there.
"""


def test_front_matter_says_title_address_date_and_metadata(tmp_path: Path) -> None:
    first, life = open_source(str(written(tmp_path, sea__md=FRONT))).passages()
    said = (("draft", False), ("my_weight", 3), ("path", "sea.md"), ("tags", ("blue", "deep")))
    assert first == Passage(
        "sea.md#0",
        "The sea: a story",
        "A heading\n\nIs deep.",
        "https://example.org/sea",
        "A heading",
        "2018-12-20T08:00:00Z",
        said,
    )
    assert (life.section, life.text, life.metadata) == ("A heading > Life", "Life\n\nFish live there.", said)


def test_a_field_of_several_types_is_text_in_every_file(tmp_path: Path) -> None:
    """People write front matter by hand: no version number ends a build."""
    files = ("version: 1.5\nrank: 1\nlabel: x\nday: 2018-01-02", "version: 1.0.2\nrank: 2.5\nlabel: [y, z]\nday: soon")
    written(tmp_path, a__md=f"---\n{files[0]}\n---\nText.", b__md=f"---\n{files[1]}\n---\nText.")
    found = [dict(one.metadata) for one in open_source(str(tmp_path)).passages()]
    assert found[0] == {"day": "2018-01-02", "label": ("x",), "path": "a.md", "rank": 1, "version": "1.5"}
    assert found[1] == {"day": "soon", "label": ("y", "z"), "path": "b.md", "rank": 2.5, "version": "1.0.2"}


def test_the_fields_that_most_files_have_are_declared(tmp_path: Path) -> None:
    many = "\n".join(f"f{n}: {n}" for n in range(100))
    written(tmp_path, a__md=f"---\n{many}\n---\nText.", b__md="---\nf99: 1\n---\nText.")
    fields = fields_of(open_source(str(tmp_path)).passages())
    assert len(fields.metadata) == 63
    assert {"f99", "path"} <= fields.metadata.keys()


def merged(n_aliases: int) -> str:
    """YAML in which each line merges the one before, so that two aliases a line double the work at each."""
    lines = [f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, n_aliases // 2 + 1)]
    return "\n".join(["a0: &a0 {k: 1}", *lines])


@pytest.mark.parametrize(
    "front",
    [
        *("a: !!bool maybe", "a: !!int ''", "a: !!timestamp soon", "a: !!float ''", "a: 1" + ":1" * 7000 + ".5"),
        *("title: [", "a: &a [*a]\nb: !!python/object:os.system {}", "d: 2018-13-45", "[" * 9000),
        *(f"a: {'[' * MOST_DEPTH}{']' * MOST_DEPTH}", merged(MOST_ALIASES + 2), merged(200)),
    ],
)
def test_front_matter_that_cannot_be_read_costs_itself_and_not_the_text(tmp_path: Path, front: str) -> None:
    source = open_source(str(written(tmp_path, a__md=f"---\n{front}\n---\nText.")))
    assert list(source.passages()) == [passage("a.md", 0, "a", "Text.")]
    assert source.skipped() == {"front matter": 1}


TOML_FRONT = """+++
title = "The sea: a story"
date = 2018-12-20T10:00:00+02:00
url = "https://example.org/sea"
tags = ["blue", "deep"]
draft = false
my-weight = 3
opens = 10:00:00
[nested]
a = 1
+++
"""


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_front_matter_may_be_toml(tmp_path: Path, line_end: str) -> None:
    yaml, toml = tmp_path / "yaml", tmp_path / "toml"
    for folder, front in ((yaml, FRONT), (toml, TOML_FRONT + FRONT.partition("\n---\n")[2])):
        folder.mkdir()
        written(folder, sea__md=front.replace("\n", line_end))
    assert list(open_source(str(toml)).passages()) == list(open_source(str(yaml)).passages())


def test_what_windows_and_word_put_beside_texts_is_ignored(tmp_path: Path) -> None:
    written(tmp_path, a__txt="Text.")
    for name in ("desktop.ini", "Thumbs.db", "~$a.docx"):
        (tmp_path / name).write_bytes(b"x")
    source = open_source(str(tmp_path))
    assert [one.text for one in source.passages()] == ["Text."]
    assert source.skipped() == {}


def test_a_note_below_a_text_stays(tmp_path: Path) -> None:
    [found] = open_source(
        str(written(tmp_path, a__md="Two hives[^1] of [it].\n\n[^1]: Painted.\n\n[it]: b.md"))
    ).passages()
    assert found.text == "Two hives[^1] of it.\n\n[^1]: Painted."


@pytest.mark.parametrize("front", ["a = [", "a = 1\na = 2", "[" * 9000, f"a = 0x{'f' * 5000}", "words"])
def test_toml_that_cannot_be_read_costs_itself_and_not_the_text(tmp_path: Path, front: str) -> None:
    source = open_source(str(written(tmp_path, a__md=f"+++\n{front}\n+++\nText.")))
    assert list(source.passages()) == [passage("a.md", 0, "a", "Text.")]
    assert source.skipped() == {"front matter": 1}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_a_text_of_windows_is_read_as_it_was_written(tmp_path: Path, encoding: str) -> None:
    texts = ["“It’s” 5 – 7 €", "Café £3", "Das Öl läuft über 3 m³ – Prüfung n.º 2"]
    for number, text in enumerate(texts):
        for kind in ("csv", "md", "txt"):
            (tmp_path / f"{number}.{kind}").write_bytes(text.encode(encoding))
    found = open_source(str(tmp_path)).passages()
    assert [one.text.removeprefix("- ") for one in found] == [text for text in texts for _ in range(3)]


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        *(
            ("счёт за воду", "cp1251"),
            ("газ за март", "cp1251"),
            ("請求書は三月", "shift_jis"),
            ("Ελληνικά", "cp1253"),
            ("水费", "gbk"),
        ),
        *(("cena żółta", "cp1250"), ("a\0b\xff", "latin-1"), ("plain", "utf-16-le"), ("a\ud800", "utf-16-be")),
    ],
)
def test_a_text_in_another_encoding_is_left_out_and_not_misread(tmp_path: Path, text: str, encoding: str) -> None:
    written(tmp_path, a__txt=text.encode(encoding, "surrogatepass") + b"\xe9\x00")
    source = open_source(str(tmp_path))
    assert list(source.passages()) == []
    assert source.skipped() == {"undecodable": 1}


NOTES = """Meters of the house

Gas upstairs:    123
Water flat: 456

On Monday we read the meters again. They had not changed since then,
but the one in the kitchen, which is new, was not read because nobody
had its key.
  - the first item, which is so long that it is broken at the end of
    the line and goes on
  - the second

\t12:00  soup
\t18:30  bread
"""


def test_plain_text_keeps_its_lines_and_joins_what_the_width_of_the_page_broke(tmp_path: Path) -> None:
    [found] = open_source(str(written(tmp_path, a__txt=NOTES))).passages()
    assert found.text.split("\n") == [
        *("Meters of the house", "", "Gas upstairs:    123", "Water flat: 456", ""),
        "On Monday we read the meters again. They had not changed since then, but the one in the kitchen, which is "
        "new, was not read because nobody had its key.",
        "  - the first item, which is so long that it is broken at the end of the line and goes on",
        *("  - the second", "", "    12:00  soup", "    18:30  bread"),
    ]


def test_a_long_paragraph_of_plain_text_is_joined_at_once() -> None:
    """Adding line after line to one text took minutes."""
    line = "x" * 71 + " " + "y" * 8
    joined = from_plain(f"{line}\n" * 100_000)
    assert "\n" not in joined
    assert len(joined) == 81 * 100_000 - 1


@pytest.mark.parametrize("front", [f"a: {'[' * (MOST_DEPTH - 1)}{']' * (MOST_DEPTH - 1)}", merged(MOST_ALIASES)])
def test_front_matter_may_be_nested_and_repeat_itself_a_little(tmp_path: Path, front: str) -> None:
    source = open_source(str(written(tmp_path, a__md=f"---\ntitle: T\n{front}\n---\nText.")))
    assert [one.title for one in source.passages()] == ["T"]
    assert source.skipped() == {}


def test_an_integer_too_large_for_digits_is_text(tmp_path: Path) -> None:
    """Python refuses to write it: that must not end a build."""
    large = f"0x{'f' * 5000}"
    source = open_source(str(written(tmp_path, a__md=f"---\ntitle: {large}\nn: {large}\nm: {2**70}\n---\nText.")))
    [found] = source.passages()
    assert found.title == large[:MOST_TITLE]
    assert dict(found.metadata) == {"m": str(2**70), "n": large, "path": "a.md"}


@pytest.mark.parametrize(
    ("line", "section"),
    [
        *(
            ("# one ##", "one"),
            ("# one#", "one#"),
            ("#\tone # two \t##  ", "one # two"),
            ("# #", None),
            ("####### x", None),
        ),
        # a heading with so many spaces must not take hours
        (f"# a{' ' * 200_000}b", "a"),
    ],
)
def test_a_heading_ends_before_what_closes_it(tmp_path: Path, line: str, section: str | None) -> None:
    found = list(open_source(str(written(tmp_path, a__md=f"Text.\n\n{line}\n\nMore."))).passages())
    assert found[-1].section == section


def test_a_heading_may_have_a_line_below(tmp_path: Path) -> None:
    text = "The *sea*\n=========\n\nIs deep.\n\nTides\n-----\n\nTwice a day.\n\n```\nno\n---\n```\n"
    found = list(open_source(str(written(tmp_path, a__md=text))).passages())
    assert [(one.title, one.section, one.text) for one in found] == [
        ("The sea", None, "Is deep."),
        ("The sea", "Tides", "Tides\n\nTwice a day.\n\n```\nno\n---\n```"),
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        *(
            (
                'See [it]({% page "/a/#b" %}), [b]({{ site.url }}/x/{{ y }}#z) or [c]({{< ref "c.md" >}}).',
                "See it, b or c.",
            ),
            ('Ask in {% channel "help" %}.{% comment %}TODO {% page "x" %}{% endcomment %}', "Ask in help."),
            ('Use {{< element "Parser" >}}{{< image "a/b.png" >}}{{< include "file.md" >}} now.', "Use Parser now."),
            ("Write `{% raw %}` or {{ value }}.", "Write `{% raw %}` or {{ value }}."),
        ),
        # none of these must take long
        *((mark * 5000, None) for mark in ("](", "{%", "]({{a}}", "{% comment %}", '{{< "a ')),
    ],
)
def test_tags_in_a_line_leave_what_they_say(tmp_path: Path, line: str, said: str | None) -> None:
    found = [one.text for one in open_source(str(written(tmp_path, a__md=f"{line}\n"))).passages()]
    assert found == ([said] if said else found)


@pytest.mark.parametrize(
    ("marked", "words"),
    [
        (
            '<button x-bind:class="{ on: os === \'mac\' }">Mac</button> and <kbd class="a > b">Ctrl</kbd>',
            "Mac and Ctrl",
        ),
        ('<Tabs groupId="os">Linux</Tabs><img src=cat.png>', "Linux"),
        ("cp <path> <source-file> <table-name>", "cp <path> <source-file> <table-name>"),
        ("cp <source> <host>", "cp <source> <host>"),
        ('<iframe src="https://x.example"></iframe>', ""),
        ("<Steps>One</Steps> on <host>", "One on <host>"),
        ("<T extends Foo = Bar>", "<T extends Foo = Bar>"),
    ],
)
def test_a_tag_goes_and_a_word_that_its_reader_fills_in_stays(marked: str, words: str) -> None:
    assert words_of(marked) == words


def test_marks_of_markdown_leave_their_words_and_code_stays(tmp_path: Path) -> None:
    text = """\
# The **[API](https://x.example)**

See [it](https://x.example/a_b "A title"), ![a cat](cat.png) or <https://y.example>: `a -> [b](c)` gives <version>,
*not* \\_this\\_, if 5 > 3 &amp; a_b_c is __set__.<br/> <!-- no -->

> Quoted -> [here][1], as [said], not [x]

- one <a id="x">**two**</a>
    - three *four* 2 * 3 * 4

    def __init__(self): return *args

| Name | Meaning |
|---|---|
| `--a_b` | **on** or [off](#off) \\| none |

```
x -> **y** <b>
[1]: z
```

[1]: https://x.example/1
[Said]: <https://x.example/2> "A title"
"""
    (found,) = open_source(str(written(tmp_path, a__md=text))).passages()
    assert found.title == "The API"
    assert (
        found.text
        == """\
See it, a cat or https://y.example: `a -> [b](c)` gives <version>, not _this_, if 5 > 3 & a_b_c is set.

Quoted -> here, as said, not [x]

- one two
    - three four 2 * 3 * 4

    def __init__(self): return *args

Name: `--a_b` | Meaning: on or off | none

```
x -> **y** <b>
[1]: z
```"""
    )


BOXES = {
    '!!! note "Take care"\n    Set **it**.\n\n        # code\n\nMore.': ("Take care\n\nSet it.\n\n    # code\n\nMore."),
    "???+ warning inline end\n    Hot.\n": "Warning\n\nHot.",
    '=== "Linux"\n\n    ```console\n    $ run\n      --all\n    ```\n\n'
    '=== "Mac"\n    !!! tip ""\n        Brew.\n    So.': (
        "Linux\n\n```console\n$ run\n  --all\n```\n\nMac\n\nBrew.\n\nSo."
    ),
    "- One\n\n    !!! info\n        Of one.\n\n- Two": "- One\n\n    Info\n\n    Of one.\n\n- Two",
    ":::tip[My tip]\nDo it.\n:::\n::: danger\nNo.\n:::": "My tip\n\nDo it.\n\nDanger\n\nNo.",
    ":::::{tab-set}\n::::{tab-item} Bash\n:sync: sh\nRun.\n::::\n:::::": "Bash\n\nRun.",
    "```{admonition} Mind\n:class: tip\nThe *gap*.\n```\nGo.": "Mind\n\nThe gap.\n\nGo.",
    "```{code-block} python\n:::x\n!!! y\n```": "```{code-block} python\n:::x\n!!! y\n```",
    "> [!NOTE]\n> Quoted.\n\nText.\n{: .lead }": "Note\n\nQuoted.\n\nText.",
    '{{< note >}}\nA {{< tip text="Pod" id="p" >}} runs.\n{{< /note >}}\n\n'
    '{% tab title="Sh" %}\nSay {% x %}.\n{% endtab %}': ("A Pod runs.\n\nSh\n\nSay {% x %}."),
    'import Tabs from "@theme/Tabs";\n\n<Tabs>\n<TabItem value="a" label="Bash">\nGive <Name>.\n</TabItem>\n</Tabs>': (
        "Bash\n\nGive <Name>."
    ),
    "Say:\n\n    {% block %}": "Say:\n\n    {% block %}",
    "//// tab | uv\n\n/// warning\n\nOld *one*.\n\n///\n\n////\n{* a.py *}\n--8<-- 'c.md'\n/// a comment of Rust": (
        "uv\n\nWarning\n\nOld one.\n\n/// a comment of Rust"
    ),
    "Words\ngo on\n---\n- a\n---\n| b |\n---": "Words go on\n\n---\n\n- a\n\n---\n\n| b |\n\n---",
    "> [!tip]- Of [[Keys|the keys]]\n> See [[Doors#Front]], `[[ -f x ]]`, [[ -f y ]] ![[a.png]] [[1]](https://x.y)": (
        "Of the keys\n\nSee Doors, `[[ -f x ]]`, [[ -f y ]]  [1]"
    ),
    "Pod\n:   A group.\n\nNode\n: A *machine*.": "Pod: A group.\n\nNode: A machine.",
    "`SIZE`\n\n: How *large* it\nmay be.\n\n    Is [5](a.md).\n    More is slow.\n\n        $ x\n        $ y\n\nEnd.": (
        "`SIZE`\n\nHow large it may be.\n\nIs 5. More is slow.\n\n```\n$ x\n$ y\n```\n\nEnd."
    ),
    "::: app.Client\n\n!!! is loud\n=== Title\n": "!!! is loud === Title",
    "```console\n> dir\n```\n\n> ```\n> > dir\n> ```\n> Said.": "```console\n> dir\n```\n\n```\n> dir\n```\nSaid.",
}


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("text", BOXES)
def test_the_boxes_of_a_site_leave_their_titles_and_what_they_hold(tmp_path: Path, text: str, line_end: str) -> None:
    (tmp_path / "a.md").write_text(text, newline=line_end)
    found = list(open_source(str(tmp_path)).passages())
    assert "\n\n".join(one.text for one in found) == BOXES[text]


@pytest.mark.parametrize(
    "mark",
    [
        "[",
        "![a",
        "**a",
        "[a](",
        "<!--",
        "!!! a b",
        '=== "a" ',
        ":::{a}",
        "{:a} ",
        "> [!a] ",
        "```{note} ",
        " ",
        "{% a",
        "[[a",
        "<A b ",
        "import a ",
        "{{< a >}} ",
    ],
)
def test_a_line_of_marks_alone_is_read_at_once(tmp_path: Path, mark: str) -> None:
    found = list(open_source(str(written(tmp_path, a__md=mark * 300_000))).passages())
    assert not mark.startswith("[") or found[0].text.startswith(mark)


@pytest.mark.parametrize("text", ["---\nText.\n---\nMore.", "---\nnever closed: yes", "--- \n"])
def test_a_rule_of_hyphens_is_no_front_matter(tmp_path: Path, text: str) -> None:
    found = list(open_source(str(written(tmp_path, a__md=text))).passages())
    assert " ".join(one.text for one in found).split() == text.split()


def test_a_comment_in_a_listing_is_no_heading(tmp_path: Path) -> None:
    text = "# T\n\nSo:\n\n```sh\n# no heading\n```\n\n## Then\n\nMore."
    found = list(open_source(str(written(tmp_path, a__md=text))).passages())
    assert [one.section for one in found] == [None, "Then"]
    assert "# no heading" in found[0].text


MANUAL = """---
url: https://docs.example/manual
---
# Manual

A paragraph that is
wrapped, but\\
broken here.  
And here.

> - An item that
>   goes on
> - Another

| code | what *it* means | |
|:-----|----|---|
| F307 | a \\| b | now |
| F410 | | |
Not a row.

```
# a | b
  kept


as it is
```
***
## Limits {#the-limits .x}
120 a minute.
"""


def test_markdown_keeps_its_lists_tables_and_code(tmp_path: Path) -> None:
    first, limits = open_source(str(written(tmp_path, a__md=MANUAL))).passages()
    assert first.text.split("\n\n") == [
        "A paragraph that is wrapped, but\nbroken here.\nAnd here.",
        "- An item that goes on\n- Another",
        "code: F307 | what it means: a | b | now\n- code: F410\nNot a row.",
        "```\n# a | b\n  kept",
        "as it is\n```",
        "***",
    ]
    assert (first.url, limits.url) == ("https://docs.example/manual", "https://docs.example/manual#the-limits")
    assert (limits.section, limits.text) == ("Limits", "Limits\n\n120 a minute.")


SPHINX = """<html><head><title>Pages</title><link rel="canonical" href="https://docs.example/p"></head><body><article>
<h1>Pages<a class="headerlink" href="#pages">¶</a></h1><p>All that is said here is said of pages, and nothing else.</p>
<section id="one two"><h2>Lists</h2><p>First<br>second <code>code</code>.</p>
<ol><li>Pull it.<ul><li>Gently</li></ul></li><li><p>Push it.</p></li></ol>
<dl><dt>book</dt><dd>has pages</dd></dl></section>
<h2 id="t">Tables<a href="#t" title="link">#</a></h2>
<table><tr><th>name</th><th>size</th></tr><tr><td>A4</td><td>210 mm</td></tr></table>
<table><tr><td>A5</td><td>148 mm</td></tr></table>
<div class="highlight"><pre>cut <b>it</b>
  twice</pre></div>
<h3>Pages</h3><p>Here the heading of the page stands once more, below the tables.</p>
</article></body></html>"""


def test_markdown_keeps_code_in_lists_and_indented_and_tables_and_headings_of_html(tmp_path: Path) -> None:
    text = """\
1. Turn on

    ```sh
    run --on
      --now
    ```

Or:

    make all
    # no heading

<h2 align="center">Ports <code>x</code></h2>
<table>
<tr><th>Env</th><th>Port</th></tr>
<tr><td>prod<br>new</td>
<td>443 | 80</td></tr>
</table>
<table><tr><td>Left</td></tr></table>

<aside>
One<br>two, `<table>`
</aside>

```html
<h2>No heading</h2>
```
"""
    found = list(open_source(str(written(tmp_path, a__md=text))).passages())
    assert [(one.section, one.text) for one in found] == [
        (None, "1. Turn on\n\n```sh\nrun --on\n  --now\n```\n\nOr:\n\n```\nmake all\n# no heading\n```"),
        (
            "Ports x",
            "Ports x\n\nEnv: prod new | Port: 443 | 80\n\nLeft\n\nOne two, `<table>`\n\n"
            "```html\n<h2>No heading</h2>\n```",
        ),
    ]


@pytest.mark.parametrize("tag", ["<table>", "<h2>", "<table><tr><td>", "\n<h2>"])
def test_html_that_never_ends_is_read_at_once_and_keeps_its_words(tmp_path: Path, tag: str) -> None:
    (found, *_) = open_source(str(written(tmp_path, a__md=f"Before.\n\n{tag * 20_000}Words."))).passages()
    assert "Before." in found.text


def test_a_web_page_keeps_its_lists_tables_and_code_and_its_headings_are_addresses(tmp_path: Path) -> None:
    pytest.importorskip("lxml_html_clean")
    found = list(open_source(str(written(tmp_path, a__html=SPHINX))).passages())
    assert {one.title for one in found} == {"Pages"}
    assert [(one.section, (one.url or "").partition("#")[2]) for one in found] == [
        (None, "pages"),
        ("Lists", "one%20two"),
        ("Tables", "t"),
        ("Tables", ""),
    ]
    assert found[1].text.split("\n\n") == [
        "Lists",
        "First\nsecond `code`.",
        "1. Pull it.\n  - Gently\n2. Push it.",
        "- book: has pages",
    ]
    assert found[2].text.split("\n\n") == [
        "Tables",
        "name: A4 | size: 210 mm",
        "| A5 | 148 mm |",
        "```\ncut it\n  twice\n```",
    ]


def test_what_a_page_describes_under_a_name_is_a_section_with_an_address(tmp_path: Path) -> None:
    page = """<html><head><title>Settings</title></head><body><main><h1>Settings</h1>
<p>The program reads all of these settings when it starts, from the file and then from the environment.</p>
<h2 id="net">Network</h2><dl class="py data"><dt class="sig" id="PORT">PORT<a class="headerlink" href="#PORT">¶</a></dt>
<dd><p>Where the program listens for connections.</p><p>Default: 5000</p><dl class="py"><dt id="PORT.max">max</dt>
<dd><p>The largest number that a port may have.</p></dd></dl></dd></dl>
<h2>Others</h2><ul><li><p>One paragraph of the item.</p><p>And one more.</p></li></ul>
<dl><dt>Term</dt><dd><p>What the term means.</p><p>More of it.</p></dd></dl></main></body></html>"""
    found = list(open_source(str(written(tmp_path, a__html=page)), url_template="https://x.example/{path}").passages())
    assert [(one.section, one.text, (one.url or "").partition("#")[2]) for one in found] == [
        (
            None,
            "The program reads all of these settings when it starts, from the file and then from the environment.",
            "",
        ),
        ("Network > PORT", "PORT\n\nWhere the program listens for connections.\n\nDefault: 5000", "PORT"),
        ("Network > PORT > max", "max\n\nThe largest number that a port may have.", "PORT.max"),
        (
            "Others",
            "Others\n\n- One paragraph of the item. And one more.\n\n- Term: What the term means. More of it.",
            "",
        ),
    ]


def test_a_page_of_a_pdf_is_found_behind_its_address(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(pdf("First page.", "Second page."))
    source = open_source(str(tmp_path), url_template="https://files.example/{path}")
    assert [one.url for one in source.passages()] == [f"https://files.example/a.pdf#page={page}" for page in (1, 2)]


def test_a_folder_is_split_at_words_when_asked_for(tmp_path: Path) -> None:
    written(tmp_path, a__md="# T\n" + " ".join(["one."] * 60) + "\n## S\n" + " ".join(["two."] * 80))
    found = list(open_source(str(tmp_path), split="words").passages())
    assert [(len(one.text.split()), one.section) for one in found] == [(100, None), (41, "S")]


PAGE = """<html><head><title>The sea</title><link rel="canonical" href="https://example.org/sea">
<meta property="article:published_time" content="2018-12-20"></head><body><nav><a href="/">Home</a></nav><article>
<h1>The sea</h1><p>The sea is deep, and most of it has never been seen by anybody.</p>
<h2>Life</h2><p>Fish live there, and many other animals that nobody has counted.</p><ul><li>whale</li><li>crab</li></ul>
</article><footer>Copyright</footer></body></html>"""


def test_a_web_page_is_its_text_by_its_headings(tmp_path: Path) -> None:
    pytest.importorskip("lxml_html_clean")
    written(tmp_path, a__html=PAGE, broken__html=b"\x00\xff<<<>", empty__htm="")
    source = open_source(str(tmp_path))
    first, life = source.passages()
    assert (first.title, first.url, first.published, first.section) == (
        "The sea",
        "https://example.org/sea",
        "2018-12-20",
        None,
    )
    assert first.text == "The sea is deep, and most of it has never been seen by anybody."
    assert (life.section, life.metadata) == ("Life", (("path", "a.html"),))
    assert life.text.endswith("nobody has counted.\n\n- whale\n- crab")
    assert source.skipped() == {"empty": 2}


@pytest.mark.parametrize("page", ["<html><head><title>Hut</title></head><body>{}</body></html>", "{}"])
def test_a_page_written_by_hand_keeps_headings_and_lists(tmp_path: Path, page: str) -> None:
    pytest.importorskip("lxml_html_clean")
    high = "It is high up, so bring warm clothes. " * 10
    said = f"<h1>Hut</h1><p>{high}</p><h2>Open</h2><ul><li>May: weekends</li><li>June: daily</li></ul>"
    first, second = open_source(str(written(tmp_path, a__html=page.format(said)))).passages()
    assert (first.title, first.section, first.text) == ("Hut", None, high.strip())
    assert (second.section, second.text) == ("Open", "Open\n\n- May: weekends\n- June: daily")


def test_bare_text_of_a_page_is_kept(tmp_path: Path) -> None:
    pytest.importorskip("lxml_html_clean")
    high = "It is high up, so bring warm clothes. " * 10
    below = "<h2>Open</h2>In <i>May</i>:<ul><li>daily</li></ul>Bye."
    page = f"<body><h1>Hut</h1>{high}<br><br>Second <b>bare</b> one.{below}</body>"
    first, second = open_source(str(written(tmp_path, a__html=page))).passages()
    assert first.text == f"{high.strip()}\n\nSecond bare one."
    assert second.text == "Open\n\nIn May:\n\n- daily\n\nBye."


# of what people save and export: what stands in the body, and the passages' sections and texts
PAGES: dict[str, tuple[str, list[tuple[str | None, str]]]] = {
    "words in no paragraph": (
        "Ask <b>B</b>en.<h2>Where?</h2>In Lima.<details><summary>Why?</summary>It is near.</details>"
        "<div>By<br>bus</div><span><p>Use &lt;b&gt; and a_b_c.</p></span>"
        "<blockquote><p>One.</p><p>Two.</p></blockquote>",
        [
            (None, "Ask Ben."),
            ("Where?", "Where?\n\nIn Lima.\n\nWhy?\n\nIt is near.\n\nBy\nbus\n\nUse <b> and a_b_c.\n\nOne.\n\nTwo."),
        ],
    ),
    "steps": (
        '<ol start="3"><li><p>Tag:</p><div class="highlight"><pre>git <b>tag</b>\n  push</pre></div><p>Wait.</p></li>'
        "<li>Go<ul><li>on</li></ul>far</li></ol><dl><dt>Returns:</dt><dd>it</dd><dd>soon</dd></dl>",
        [
            (
                None,
                "3. Tag:\n\n```\ngit tag\n  push\n```\n\nWait.\n4. Go\n  - on\n\nfar\n\n- Returns: it\n\nsoon",
            )
        ],
    ),
    "tables": (
        "<table><caption>Fees</caption><tr><th>What</th><th>How</th></tr><tr><td rowspan=2>Nut</td><td>1</td></tr>"
        "<tr><td>2<br>or <code>a|b</code></td></tr></table><table><tr><td><b>City</b></td><td><b>Hotel</b></td></tr>"
        "<tr><td>Rome</td><td>Sole</td></tr></table><table><tr><td>Left</td><td><table><tr><td>Gate</td><td>9910</td></tr>"
        "</table></td></tr></table><table><tr><th colspan=2>Pump</th></tr><tr><th>Watt</th><td>5</td></tr></table>"
        "<table>Open <tr><td>daily</td></tr><tr><td>or not</td></tr></table>"
        '<table><tr><td class="linenos"><pre>1</pre></td><td><pre>run\n  it</pre></td></tr></table>',
        [
            (
                None,
                "Fees\n\nWhat: Nut | How: 1\nWhat: Nut | How: 2 or `a|b`\n\nCity: Rome | Hotel: Sole\n\nLeft\n\n"
                "| Gate | 9910 |\n\nPump\n\n| Watt | 5 |\n\nOpen\n\ndaily\n\nor not\n\n```\nrun\n  it\n```",
            )
        ],
    ),
    "what looks like a menu or an advert": (
        '<section id="cookies"><h2>Cookies</h2><p>We keep three.</p></section><div class="expand-container">It is '
        "late, press <button>Save</button>.</div>"
        '<div class="breadcrumb"><a href="/">Home</a> <a href="/a">Docs</a></div>'
        '<ul><li><a href="#cookies">Cookies</a></li></ul><nav>Next</nav><footer>End</footer>',
        [("Cookies", "Cookies\n\nWe keep three.\n\nIt is late, press Save.")],
    ),
    "headings within lists and tables": (
        "<ul><li><section><h2><code>start</code> {#x}</h2><p>Starts it.</p></section></li></ul>"
        "<table><tr><td><h3>stop</h3><p>Ends it.</p></td></tr></table>",
        [("start {#x}", "start {#x}\n\nStarts it."), ("start {#x} > stop", "stop\n\nEnds it.")],
    ),
    "several articles": (
        "<article><h2>One</h2><p>First.</p></article><article><h2>Two</h2><p>Second.</p></article>",
        [("One", "One\n\nFirst."), ("Two", "Two\n\nSecond.")],
    ),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_web_page_keeps_what_people_write_into_it(tmp_path: Path, name: str) -> None:
    pytest.importorskip("lxml_html_clean")
    body, expected = PAGES[name]
    found = open_source(str(written(tmp_path, a__html=f"<html><body><h1>Page</h1>{body}</body></html>"))).passages()
    assert [(one.section, one.text) for one in found] == expected


def test_the_title_is_that_of_the_text_and_a_heading_of_a_wiki_an_address(tmp_path: Path) -> None:
    pytest.importorskip("lxml_html_clean")
    edit = '<span class="mw-editsection">[<a href="/e">edit</a>]</span>'
    wiki = f'<h1>Site</h1><main><h1>Pump</h1><h2><span id="Go">Go</span>{edit}</h2><p>Pull.</p></main>'
    written(tmp_path, a__html=f"<title>Pump - Site</title>{wiki}")
    found = open_source(str(tmp_path), url_template="https://x.example/{path}").passages()
    assert [(one.title, one.section, one.url) for one in found] == [("Pump", "Go", "https://x.example/a.html#Go")]


def test_the_pages_of_a_pdf_have_their_numbers_and_a_broken_one_is_left_out(tmp_path: Path) -> None:
    sound = pdf("First page.", "", "Third page.")
    written(
        tmp_path, a__pdf=sound, b__pdf=sound[:200], c__pdf=b"no pdf", d__pdf=pdf("x", password="secret"), e__txt="End."
    )
    source = open_source(str(tmp_path))
    assert list(source.passages()) == [
        Passage("a.pdf#0", "a", "First page.", metadata=(("page", 1), ("path", "a.pdf"))),
        Passage("a.pdf#1", "a", "Third page.", metadata=(("page", 3), ("path", "a.pdf"))),
        passage("e.txt", 0, "e", "End."),
    ]
    assert source.skipped() == {"broken": 2, "encrypted": 1}


@pytest.mark.slow
def test_a_pdf_that_takes_too_long_costs_itself(tmp_path: Path) -> None:
    """Its page shows a text of 40 million characters, packed into a thousandth."""
    content = pdf("word " * 8_000_000)
    import pypdf

    packed = io.BytesIO()
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(content))
    writer.pages[0].compress_content_streams()
    writer.write(packed)
    assert len(packed.getvalue()) < 1 << 20
    written(tmp_path, a__pdf=packed.getvalue(), b__pdf=pdf("Sound."))
    source = FolderSource(tmp_path, file_seconds=2)
    assert [one.text for one in source.passages()] == ["Sound."]
    assert source.skipped() == {"too heavy": 1}
    assert multiprocessing.active_children() == []


def test_files_whose_extra_is_not_installed_are_counted_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openbook.indexing.sources.folder_file.find_spec", lambda package: None)
    written(tmp_path, a__html=PAGE, b__pdf=b"x", c__pdf=b"x")
    with pytest.raises(SourceInvalid, match=r"pip install 'openbook\[html\]' 'openbook\[pdf\]'"):
        open_source(str(tmp_path))
    source = open_source(str(written(tmp_path, d__txt="Text.")))
    whole = check_marks(lambda: open_source(str(tmp_path)))
    assert list(source.batches()) == whole
    assert source.skipped() == {".html without openbook[html]": 1, ".pdf without openbook[pdf]": 2}


def test_an_address_is_made_of_the_path_only_when_asked_for(tmp_path: Path) -> None:
    written(tmp_path, a__md="Text.", b__md=FRONT)
    source = open_source(str(tmp_path), url_template="https://docs.example.org/{path}")
    assert {one.url for one in source.passages()} == {"https://docs.example.org/a.md", "https://example.org/sea"}
