"""openbook index bm25"""

import time
from typing import Annotated

import typer

from openbook.cli.consoles import messages
from openbook.cli.options import takes_settings
from openbook.cli.progress import ProgressBar
from openbook.indexing.bm25_build import K1, B, Bm25Parameters
from openbook.indexing.bm25_publish import add_bm25
from openbook.settings import Settings
from openbook.storage.index_store import IndexStore

app = typer.Typer()

PERCENT = 100


@app.command()
@takes_settings("indexes")
def bm25(
    settings: Settings,
    version: Annotated[str, typer.Argument(metavar="VERSION", help="The version.")],
    k1: Annotated[float, typer.Option(help="How long a word goes on counting that stands more than once.")] = K1,
    b: Annotated[float, typer.Option(help="How much a long passage is held back, from 0 to 1.")] = B,
) -> None:
    """Add BM25 to a version, so that questions may ask for it; what BM25 it had gives way.

    Publishes the version anew. Vectors and passages are the files that were there, and nothing is embedded again. A
    service that has the version open goes on as it was until it swaps to it again.
    """
    started = time.perf_counter()
    with ProgressBar() as progress:
        progress.update(0, PERCENT, "bm25")
        info = add_bm25(
            IndexStore(settings.indexes),
            version,
            Bm25Parameters(k1, b),
            report=lambda share: progress.update(round(PERCENT * share), PERCENT, "bm25"),
        )
        progress.update(PERCENT, PERCENT, "bm25")
    words = info.bm25.n_terms if info.bm25 is not None else 0
    messages().print(
        f"added BM25 to {version}: {words:,} words of {info.n_passages:,} passages "
        f"in {time.perf_counter() - started:.1f} s",
        markup=False,
    )
