"""The retrievers of docs/client.md, as they are printed there, in the newest LangChain and Haystack of the registry."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.openbook.api.conftest import post
from tests.places import ROOT

QUESTION = "who is the president of peru ?"
# What each library calls its text, and how its retriever is asked.
LANGCHAIN = """
found = OpenbookRetriever(url=URL, k=3).invoke(QUESTION)
print(json.dumps([[one.id, one.page_content, one.metadata["prior"]] for one in found]))
"""
HAYSTACK = """
from haystack import Pipeline
pipeline = Pipeline()
pipeline.add_component("found", OpenbookRetriever(url=URL, k=3))
found = pipeline.run({"found": {"query": QUESTION}})["found"]["documents"]
print(json.dumps([[one.id, one.content, one.score] for one in found]))
"""


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("package", "module", "asked"),
    [("langchain-core", "langchain_core", LANGCHAIN), ("haystack-ai", "haystack", HAYSTACK)],
)
def test_it_is_a_retriever_of(package: str, module: str, asked: str, server: str, tmp_path: Path) -> None:
    page = (ROOT / "docs/client.md").read_text(encoding="utf-8")
    (printed,) = (code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if f"from {module}" in code)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "own"], check=True)
    python = tmp_path / "own/bin/python"
    # as a stranger has it: the client alone beside the library; setuptools leaves files where it builds
    client = shutil.copytree(ROOT / "service/openbook_client", tmp_path / "client")
    subprocess.run([python, "-m", "pip", "install", "--quiet", package, client], check=True)
    code = f"import json\nURL, QUESTION = {server!r}, {QUESTION!r}\n{printed}{asked}"
    quiet = os.environ | {"HAYSTACK_TELEMETRY_ENABLED": "False"}
    ended = subprocess.run([python, "-c", code], cwd=tmp_path, env=quiet, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    found = post(f"{server}/retrieve", json={"question": QUESTION, "n_docs": 3}).json()["passages"]
    assert json.loads(ended.stdout) == [[one["passage_id"], one["text"], one["prior"]] for one in found]
