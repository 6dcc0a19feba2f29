"""Files and FAISS: the versioned folder of indexes. Knows nothing of torch, HTTP or the live service."""
