"""The files of a folder that are neither text nor Markdown."""

from openbook.indexing.sources.folder_file import FileReader
from openbook.plugins.documents.html_page import read_html
from openbook.plugins.documents.office import read_docx, read_eml, read_epub, read_pptx, read_xlsx
from openbook.plugins.documents.pdf_file import read_pdf
from openbook.plugins.documents.plain import (
    read_adoc,
    read_code,
    read_csv,
    read_ipynb,
    read_json,
    read_marked,
    read_org,
)
from openbook.plugins.documents.rst import read_rst

html = FileReader(read_html, "openbook[html]", ("trafilatura", "lxml_html_clean", "markdownify"))
pdf = FileReader(read_pdf, "openbook[pdf]", ("pypdf",))
docx = FileReader(read_docx, "openbook[office]", ("mammoth", "markdownify"))
xlsx = FileReader(read_xlsx, "openbook[office]", ("openpyxl",))
epub = FileReader(read_epub, "openbook[office]", ("markdownify",))
rst = FileReader(read_rst, "openbook[office]", ("docutils", "markdownify"))
eml = FileReader(read_eml, "openbook[office]", ("markdownify",))
pptx = FileReader(read_pptx)
csv = FileReader(read_csv)
ipynb = FileReader(read_ipynb)
json = FileReader(read_json)
marked = FileReader(read_marked)
adoc = FileReader(read_adoc)
org = FileReader(read_org)
code = FileReader(read_code)
