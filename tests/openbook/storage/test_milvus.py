import time

import numpy as np

from openbook.storage.index_store import IndexStore
from tests.openbook.storage.test_snapshot import query


def test_try(milvus_indexes, tiny_indexes):
    a = IndexStore(milvus_indexes)
    b = IndexStore(tiny_indexes)
    t = time.time()
    x = a.open("tiny-2016")
    print("open", time.time() - t)
    t = time.time()
    x.warm()
    print("warm", time.time() - t)
    y = b.open("tiny-2016")
    np.testing.assert_array_equal(x.search(query(), 5), y.search(query(), 5))
    t = time.time()
    r = x.nearest(query(), 5)
    print("nearest", time.time() - t)
    for f, g in zip(r, y.nearest(query(), 5)):
        np.testing.assert_array_equal(f.rows, g.rows)
        np.testing.assert_allclose(f.products, g.products, rtol=1e-12)
    t = time.time()
    z = a.open("tiny-2018")
    print("open", time.time() - t)
    t = time.time()
    x.close()
    print("close", time.time() - t)
    t = time.time()
    z.search(query(), 12)
    print("search", time.time() - t)
    t = time.time()
    print(a.verify("tiny-2016", print))
    print("verify", time.time() - t)
