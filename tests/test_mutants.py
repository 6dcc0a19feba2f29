"""Breaks a line on which a promise rests, and expects the test that holds the promise to fail."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# What a run of the suite reads beside service/ and tests/, which are copied.
BESIDE = ("checkpoints", "deploy", "docs", "indexes", "CHANGELOG.md", "Makefile", "README.md", "pyproject.toml")

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Mutant:
    """`broken` takes the place of the one text `line` in a file below service/openbook; `test`, below tests, fails."""

    promise: str
    file: str
    line: str
    broken: str
    test: str


MUTANTS = [
    Mutant(
        "RAG-Token weighs passages by their prior",
        "rag/marginal.py",
        "torch.logsumexp(log_probs + log_prior[..., None], dim=-2)",
        "torch.logsumexp(log_probs, dim=-2)",
        "openbook/rag/test_marginal.py",
    ),
    Mutant(
        "RAG-Sequence weighs passages by their prior",
        "rag/marginal.py",
        "torch.logsumexp(token_log_probs.cumsum(dim=-1) + log_prior[..., None], dim=-2)",
        "torch.logsumexp(token_log_probs.cumsum(dim=-1), dim=-2)",
        "openbook/rag/test_marginal.py",
    ),
    Mutant(
        "a prior is never softmax of NaN",
        "rag/retriever.py",
        '    if len(wrong):\n        reason = f"the doc_score',
        '    if False:\n        reason = f"the doc_score',
        "openbook/rag/test_not_finite.py",
    ),
    Mutant(
        "a lease keeps its snapshot open",
        "application/live_index.py",
        "opened.leases += 1",
        "opened.leases += 0",
        "openbook/application/test_live_index.py",
    ),
    Mutant(
        "a flip retires the version before",
        "application/live_index.py",
        "        self._retire(waiting[: max(0, n_open - self._limit)])",
        "        pass",
        "openbook/application/test_live_index.py",
    ),
    Mutant(
        "a comparison takes all its leases at one moment",
        "application/answer_question.py",
        "with self._live.leases(versions) as leases:",
        "with self._live.leases([versions[0]]) as (one,), self._live.leases(versions[1:]) as rest:\n"
        "                leases = (one, *rest)",
        "openbook/application/test_comparison.py",
    ),
    Mutant(
        "a client that hangs up ends the work",
        "application/answer_question.py",
        "            answering.cancel()\n",
        "",
        "openbook/application/test_streaming.py",
    ),
    Mutant(
        "a version that does not fit beside the live one is refused",
        "application/swap_attempt.py",
        "if needed > available:",
        "if False:",
        "openbook/application/test_swap_index.py",
    ),
    Mutant(
        "what was published again meanwhile is not served",
        "application/swap_attempt.py",
        "if snapshot.identity != identity:",
        "if False:",
        "openbook/application/test_swap_index.py",
    ),
    Mutant(
        "a refused swap closes what it opened",
        "application/swap_attempt.py",
        "        except BaseException:\n            snapshot.close()\n",
        "        except BaseException:\n",
        "openbook/application/test_swap_index.py",
    ),
    Mutant(
        "verify=checksum compares every byte",
        "storage/verification.py",
        'if verify == "checksum" and durable.sha256_of(folder / name, count) != file.sha256:',
        "if False:",
        "openbook/storage/test_verification.py",
    ),
    Mutant(
        "of two writers of CURRENT in a store one wins",
        "plugins/objects/fsspec_store.py",
        "self._call(lambda files: files.pipe_file(self._at(path), content, **condition))",
        "self._call(lambda files: files.pipe_file(self._at(path), content))",
        "openbook/plugins/objects/test_s3.py",
    ),
    Mutant(
        "no link below a folder of texts is followed",
        "indexing/text_tree.py",
        "_FOLDER | os.O_NOFOLLOW",
        "_FOLDER",
        "openbook/indexing/test_text_tree.py",
    ),
    Mutant(
        "a converter has so much memory and no more",
        "indexing/sources/guarded.py",
        "limit = pages * resource.getpagesize() + MEMORY_BYTES",
        "limit = hard",
        "openbook/indexing/sources/test_guarded.py",
    ),
    Mutant(
        "a passage writes no control token",
        "plugins/generators/causal_wording.py",
        "added | set(tokenizer.all_special_tokens)",
        "set(tokenizer.all_special_tokens)",
        "openbook/plugins/generators/test_causal_wording.py",
    ),
    Mutant(
        "no code of a checkpoint's folder runs",
        "rag/checkpoint.py",
        "RagConfig.from_pretrained(folder, trust_remote_code=False)",
        "RagConfig.from_pretrained(folder)",
        "openbook/rag/test_foreign_code.py",
    ),
    Mutant(
        "a response has so many bytes and no more",
        "api/writing.py",
        "        if len(content) > most:",
        "        if False:",
        "openbook/api/test_writing.py",
    ),
    Mutant(
        "a question asks for so much work and no more",
        "api/schemas.py",
        "if (work := self.work(options)) > settings.max_work:",
        "if (work := self.work(options)) < 0:",
        "openbook/api/test_work.py",
    ),
    Mutant(
        "a wrong key of a reader is refused",
        "plugins/keys/gate.py",
        "if key is None and not is_admin_token(sent, self.settings):",
        "if False:",
        "openbook/plugins/keys/test_gate.py",
    ),
    Mutant(
        "a wrong admin token is refused",
        "api/access.py",
        "if is_admin_token(given, settings):",
        "if given:",
        "openbook/api/test_hostile_clients.py",
    ),
]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository, with files of its own where a mutant breaks them."""
    root = tmp_path_factory.mktemp("mutants")
    for folder in ("service", "tests"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in BESIDE:
        (root / name).symlink_to(ROOT / name)
    return root


def test_nothing_fails_before_anything_is_broken(copy: Path) -> None:
    assert run(copy, *sorted({mutant.test for mutant in MUTANTS})) == 0


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.promise.replace(" ", "-"))
def test_a_broken_line_is_noticed(copy: Path, mutant: Mutant) -> None:
    file = copy / "service" / "openbook" / mutant.file
    whole = file.read_text(encoding="utf-8")
    assert whole.count(mutant.line) == 1, f"{mutant.file} has changed: break another line"
    file.write_text(whole.replace(mutant.line, mutant.broken), encoding="utf-8")
    try:
        assert run(copy, mutant.test) == 1, f"nothing in {mutant.test} notices it"
    finally:
        file.write_text(whole, encoding="utf-8")


def run(root: Path, *tests: str) -> int:
    """pytest's exit status: 0 all passed, 1 some failed."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        *(f"tests/{test}" for test in tests),
    ]
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [*command, "-m", "not slow and not gpu"], cwd=root, env=environment, stdout=subprocess.DEVNULL, timeout=900
    ).returncode
