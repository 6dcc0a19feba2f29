"""The files that people have: what each kind becomes, and what a broken or hostile one costs."""

import io
import json
import zipfile
from collections import Counter
from datetime import datetime
from email.message import EmailMessage
from pathlib import Path

from openpyxl import Workbook

from openbook.indexing.sources import open_source
from openbook.indexing.sources.folder import FolderSource
from tests.fixtures.mixed_folder import QUESTIONS, files, write_mixed_folder
from tests.fixtures.office import cells, docx, packed, pptx, said, xlsx

EPUB = packed(
    {
        "META-INF/container.xml": '<c xmlns="c"><rootfile full-path="OPS/book.opf"/></c>',
        "OPS/book.opf": '<package xmlns="o" xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>The Sea</dc:title>'
        '<dc:date>2019-05-01</dc:date><item id="b" href="two.xhtml"/><item id="a" href="one.xhtml"/>'
        '<itemref idref="a"/><itemref idref="b"/></package>',
        "OPS/one.xhtml": "<html><body><h1>Tides</h1><p>They come twice a day.</p></body></html>",
        "OPS/two.xhtml": "<html><body><p>The end.</p></body></html>",
    }
)


LETTER = b"""From: a@example.org
Content-Type: multipart/alternative; boundary=x

--x
Content-Type: text/plain

--x
Content-Type: text/html

<style>p{color:red}</style><table><tr><td><p># 1 <b>is</b> &lt;here&gt;</p>
<table><tr><td>Order</td><td>77</td></tr><tr><td>Total</td><td>30</td></tr></table></td></tr></table>
<table><tr><td rowspan=2>Mon</td><td>a|b</td></tr><tr><td>c</td></tr></table>
--x--
"""


# a program says nothing of its encoding, and breaks a line
BARE = "Inácio’s oven:\n180 °C, and never above two hundred degrees, which burns."


def mail() -> bytes:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "ana@example.org", "all@example.org", "The alarm code"
    message["Date"] = "Mon, 05 Feb 2024 10:00:00 +0000"
    message.set_content("The new alarm code is 4711.\n")
    message.add_alternative("<p>The new alarm code is <b>4711</b>.</p>", subtype="html")
    message.add_attachment(b"\x00", maintype="application", subtype="octet-stream", filename="x.bin")
    return message.as_bytes()


def money() -> bytes:
    book = Workbook()
    book.active.append(["what", "share", "sum", "paid", "day", "n"])
    book.active.append(["Rent", 0.25, 1234.5, 9, datetime(2025, 3, 1), 7.5])
    formats = ["General", "0%", '"£"#,##0.00', "#,##0 [$€-407]", "[$-409]d mmm yyyy", "0.00"]
    for cell, form in zip(book.active[2], formats, strict=True):
        cell.number_format = form
    packed = io.BytesIO()
    book.save(packed)
    return packed.getvalue()


# of each kind a file, and what its passages say: the section and the text
KINDS: dict[str, tuple[bytes, list[tuple[str | None, str]]]] = {
    "a.docx": (
        docx(
            said("Travel")
            + said("Hotels", "Heading1")
            + said("Up to 160 euros.")
            + f"<w:tbl>{cells('city', 'euros')}{cells('Zurich', '220')}</w:tbl>"
        ),
        [(None, "Travel"), ("Hotels", "Hotels\n\nUp to 160 euros.\n\ncity: Zurich | euros: 220")],
    ),
    "b.xlsx": (
        xlsx(Tariffs=[["weight", "price"], ["2 kg", 4.5], ["5 kg", 7.0]], Empty=[], Notes=[["Call us."]]),
        [
            ("Tariffs", "Tariffs\n\nweight: 2 kg | price: 4.5\nweight: 5 kg | price: 7"),
            ("Notes", "Notes\n\n- Call us."),
        ],
    ),
    "c.pptx": (
        pptx(["Plan of 2025", "Open in Lisbon", "Hire ten"], ["The end"]),
        [("Plan of 2025", "Plan of 2025\n\n- Open in Lisbon\n- Hire ten"), ("The end", "The end")],
    ),
    "d.epub": (EPUB, [("Tides", "They come twice a day."), (None, "The end.")]),
    "e.eml": (
        mail(),
        [
            (None, "From: ana@example.org\nTo: all@example.org\nDate: Mon, 05 Feb 2024 10:00:00 +0000"),
            (None, "The new alarm code is 4711."),
        ],
    ),
    "f.csv": (
        b"sep=;\r\ncode;meaning\nF307;the index is damaged\n",
        [(None, "code: F307 | meaning: the index is damaged")],
    ),
    "letter.eml": (
        LETTER,
        [(None, "From: a@example.org"), (None, "# 1 is <here>\n\n| Order | 77 |\n| Total | 30 |\n\nMon: Mon | a|b: c")],
    ),
    "bare.eml": (
        f"From: a@example.org\n\n{BARE}".replace("which burns", "which\nburns").encode(),
        [(None, "From: a@example.org"), (None, BARE)],
    ),
    **{
        f"{charset}{number}.eml": (
            f"From: Müller <a@example.org>\nSubject: {charset}{number}\n{kind}\n\nCafé – £5\n".encode(encoding),
            [(None, "From: Müller <a@example.org>"), (None, "Café – £5")],
        )
        for charset in ("iso-8859-1", "us-ascii", "unknown-8bit", "utf-8")
        for number, encoding in enumerate(("cp1252", "utf-8"))
        if (kind := f"Content-Type: text/plain; charset={charset}") and (charset, encoding) != ("iso-8859-1", "utf-8")
    },
    "mixed.eml": (
        b"From: M\xfcller <a@example.org>\nContent-Type: text/plain;charset=latin1\n\nCaf\xe9\x85\n\xa35\r\n\r\n\xa36",
        [(None, "From: Müller <a@example.org>"), (None, "Café…\n£5\n\n£6")],
    ),
    "money.xlsx": (
        money(),
        [(None, "what: Rent | share: 25% | sum: £1234.5 | paid: €9 | day: 2025-03-01 | n: 7.5")],
    ),
    "two.csv": (
        b"Price list,,\nItem,Price,\n,one,ten\nNut,1,9\n\nCity,Rate,\nRome,120,\n\nNo,names,\nbelow,,\n",
        [
            (
                None,
                "- Price list\nItem: Nut | Price one: 1 | Price ten: 9\nCity: Rome | Rate: 120\n"
                "City: No | Rate: names\n- City: below",
            )
        ],
    ),
    "code.org": (b"* N\n\n** A\n#+begin_src sh\n# stays\n* x\n#+end_src\n", [("A", "A\n\n```\n# stays\n* x\n```")]),
    "code.adoc": (
        b"= N\n\n== A\n\n----\n// stays\n. ./x\n----\n\n|===\n2+|Wide |c\n|1 |2 |3\n|===\n",
        [("A", "A\n\n```\n// stays\n. ./x\n```\n\nWide: 1 | 2 | c: 3")],
    ),
    "g.json": (
        b'[{"name": "port", "default": 8000}, {"name": "host", "tags": ["a"]}]',
        [(None, 'name: port | default: 8000\nname: host | tags: ["a"]')],
    ),
    "h.json": (b'{"limits": {"rate": 5, "names": ["x", "y"]}}', [(None, "limits.rate: 5\nlimits.names: x, y")]),
    "i.ipynb": (
        json.dumps(
            {
                "cells": [
                    {"cell_type": "markdown", "source": ["# Load\n", "Read the file first."]},
                    {"cell_type": "code", "source": "read('x')", "outputs": [{"text": "secret"}]},
                ]
            }
        ).encode(),
        [(None, "Read the file first.\n\n```\nread('x')\n```")],
    ),
    "j.rst": (
        b"Limits\n======\n\nSee :ref:`rates <r>`.\n\nRates\n-----\n\n- five a second\n\n"
        b".. raw:: html\n\n   <b>raw</b>\n\n.. include:: /etc/passwd\n\n"
        b"===== =====\ncode  cost\n===== =====\nA     3\n===== =====\n",
        [(None, "See rates."), ("Rates", "Rates\n\n- five a second\n\ncode: A | cost: 3")],
    ),
    "sphinx.rst": (
        b"Settings\n========\n\n.. contents::\n\n"
        b".. toctree::\n\n   other\n\n.. only:: html\n\n   Seen.\n\n.. py:data:: PORT\n"
        b"   :type: int\n\n   Where :meth:`~App.run` listens.\n\n"
        b"   Default: ``5000``\n\n   .. versionchanged:: 2.1\n      Was *80*.\n\n"
        b".. deprecated::\n\n.. function:: run(\\*hosts)\n"
        b"              stop()\n\n   See :doc:`/start`.\n\n.. autofunction:: abort\n\nStart\n-----\n\n"
        b".. tabs::\n\n   .. group-tab:: Bash\n\n      .. code-block:: sh\n         :caption: run it\n\n"
        b"         $ run\n\n"
        b".. seealso:: The `guide <https://example.org>`_.\n\n"
        b".. container::\n   :unheard-of: 1\n\n   Be quick.\n",
        [
            (None, "Seen."),
            (
                "PORT",
                "PORT\n\nType: int\n\nWhere run listens.\n\nDefault: 5000\n\nChanged in version 2.1: Was 80.\n\n"
                "Deprecated since version",
            ),
            ("run(*hosts), stop()", "run(*hosts), stop()\n\nSee start."),
            ("Start", "Start\n\nBash\n\n```\n$ run\n```\n\nThe guide.\n\nBe quick."),
        ],
    ),
    "k.adoc": (
        b"= Guide\n:toc:\n:app: Acme\n\n== Start\n\nRun {app}, says xref:a.adoc[A], not <<b>> {x}:\n\n"
        b".Run it\n[source,sh]\n"
        b"----\nmake serve\n.hidden\n----\n\n[WARNING]\n====\nHot.\n====\n\n* One\n+\nof it\n\ninclude::c.adoc[]\n\n"
        b'[cols="1,2",options="header"]\n|===\n|Name |Meaning\n\n|port\na|where it\nlistens\n|host | address\n|===\n\n'
        b"|===\n| A | B\n| 1 | 2\n|===\n",
        [
            (
                "Start",
                "Start\n\nRun Acme, says A, not b {x}:\n\nRun it\n\n```\nmake serve\n.hidden\n```\n\nHot.\n\n"
                "- One\n\nof it\n\n"
                "Name: port | Meaning: where it listens\nName: host | Meaning: address\n\nA: 1 | B: 2",
            )
        ],
    ),
    "x.mdx": (
        b"import A from 'a';\n\n# Start\n\n<A>\nGo.\n</A>\n\n## End\n\n```py\nfrom a import b\n```\n",
        [(None, "Go."), ("End", "End\n\n```py\nfrom a import b\n```")],
    ),
    "y.yaml": (b"ports:\n  - 80\n", [(None, "ports:\n  - 80")]),
    "l.org": (
        b"#+title: Notes\n# a comment\n\n** Keys\nUnder the [[mat][door mat]].\n\n"
        b"| who | when |\n|-----+------|\n| Ana | noon |\n",
        [("Keys", "Keys\n\nUnder the door mat.\n\nwho: Ana | when: noon")],
    ),
    "m.py": (
        b'"""Waits."""\n\nLIMIT = 5\n\n\n'
        b'def wait(seconds: int) -> None:\n    """Wait so long."""\n    sleep(seconds)\n',
        [
            (None, '"""Waits."""\n\nLIMIT = 5'),
            ("def wait", 'def wait(seconds: int) -> None:\n    """Wait so long."""\n    sleep(seconds)'),
        ],
    ),
}
TITLES = {
    "d.epub": "The Sea",
    "e.eml": "The alarm code",
    "c.pptx": "Plan of 2025",
    "j.rst": "Limits",
    "x.mdx": "Start",
    "sphinx.rst": "Settings",
    "k.adoc": "Guide",
}


def test_every_kind_keeps_its_headings_lists_tables_and_code(tmp_path: Path) -> None:
    for name, (content, _) in KINDS.items():
        (tmp_path / name).write_bytes(content)
    source = open_source(str(tmp_path))
    found = list(source.passages())
    for name, (_, expected) in KINDS.items():
        mine = [one for one in found if one.passage_id.startswith(f"{name}#")]
        assert [(one.section, one.text) for one in mine] == expected, name
        assert {one.title for one in mine} == {TITLES.get(name, mine[0].title)}
    assert not source.skipped()
    dates = {one.passage_id: one.published for one in found if one.published}
    assert dates == {
        **{f"d.epub#{number}": "2019-05-01" for number in range(2)},
        **{f"e.eml#{number}": "2024-02-05T10:00:00Z" for number in range(2)},
    }
    assert {dict(one.metadata).get("page") for one in found if one.passage_id.startswith("c.pptx")} == {1, 2}


def test_what_is_broken_hostile_or_closed_is_left_out_and_named(tmp_path: Path) -> None:
    laughs = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]>'
    entities = docx("").replace(b"", b"")
    with zipfile.ZipFile(io.BytesIO(entities)) as whole:
        files = {name: whole.read(name) for name in whole.namelist()}
    files["word/document.xml"] = laughs.encode() + files["word/document.xml"]
    bad = {
        "bomb.xlsx": packed({"xl/workbook.xml": b"0" * (600 << 20)}),
        "laughs.docx": packed(files),
        "old.docx": b"\xd0\xcf\x11\xe0" + b"\0" * 600,
        "torn.xlsx": xlsx(a=[["x", "y"], ["1", "2"]])[:-40],
        "torn.pptx": b"PK\x03\x04",
        "empty.epub": packed({"mimetype": "application/epub+zip"}),
        "no.ipynb": b'{"cells": 5}',
        "deep.json": b"[" * 200_000,
        "bytes.csv": b"\xff\xfe\x00",
        "empty.csv": b"",
        "no.eml": b"\x00\x01\x02",
    }
    for name, content in bad.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "good.csv").write_text("a,b\n1,2\n")
    source = FolderSource(tmp_path)
    assert [one.text for one in source.passages()] == ["a: 1 | b: 2"]
    said = source.left_out()
    assert all(repr(name) in said for name in bad), said
    assert source.skipped() == {"too large": 1, "encrypted": 1, "undecodable": 1, "empty": 1, "broken": 7}


def test_any_bytes_of_any_kind_end_in_a_reason(tmp_path: Path) -> None:
    contents = (b"", b"\x00", b"PK\x03\x04\x00", b"<a>&", "ü\n".encode("latin-1"), b"{}", b"[]", b"null")
    for kind in {Path(name).suffix for name in KINDS}:
        for number, content in enumerate(contents):
            (tmp_path / f"{number}{kind}").write_bytes(content)
    (tmp_path / "z.txt").write_text("End.")
    assert "End." in [one.text for one in open_source(str(tmp_path)).passages()]


def test_a_persons_folder_is_read_whole_and_holds_the_evidence_of_its_questions(tmp_path: Path) -> None:
    source = open_source(str(write_mixed_folder(tmp_path)))
    texts = dict.fromkeys(files(), "")
    for passage in source.passages():
        texts[str(dict(passage.metadata)["path"])] += f" {' '.join(passage.text.split())}"
    assert len(texts) >= 40
    assert all(texts.values())
    assert not source.skipped()
    questions = [json.loads(line) for line in QUESTIONS.read_text(encoding="utf-8").splitlines()]
    assert Counter(one["kind"] for one in questions) == {"fact": 20, "how": 20, "none": 20}
    for one in questions:
        assert one["kind"] == "none" or one["evidence"] in texts[one["source"]], one
        assert all(answer.lower() in one["evidence"].lower() for answer in one["answers"][:1]), one
