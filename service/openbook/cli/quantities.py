"""Seconds, bytes and rates, as people read them."""


def duration(seconds: float) -> str:
    """42 s, 17 min, 5.3 h, 12 days."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"


def size(n_bytes: float) -> str:
    """In powers of 1000: 71.2 GB."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if n_bytes < 1000:
            return f"{n_bytes:,.0f} bytes" if unit == "bytes" else f"{n_bytes:,.1f} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:,.1f} TB"


def per_second(rate: float) -> str:
    """1,200/s, 4.7/s, 0.013/s."""
    return f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2g}/s"
