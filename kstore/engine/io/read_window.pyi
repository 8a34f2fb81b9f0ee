from typing import final

@final
class ReadWindow:
    """Bytes [start, start + length) of `file`, of which nothing from `limit` on is shown. For one thread at a time."""
