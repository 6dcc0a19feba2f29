"""Web pages and PDFs of a folder."""

from openbook.indexing.sources.folder_file import FileReader
from openbook.plugins.documents.html_page import read_html
from openbook.plugins.documents.pdf_file import read_pdf

html = FileReader(read_html, "openbook[html]", ("trafilatura", "lxml_html_clean"))
pdf = FileReader(read_pdf, "openbook[pdf]", ("pypdf",))
