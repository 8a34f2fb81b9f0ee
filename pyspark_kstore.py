"""Found by Spark by its name: makes format("kstore") known without a call of kstore.spark.register."""

from typing import Any


def __getattr__(name: str) -> Any:
    """Nothing is imported with this module: if it failed, Spark would give up the look-up for every package."""
    if name == "DefaultSource":
        from kstore.spark.datasource import KStoreDataSource

        return KStoreDataSource
    raise AttributeError(name)
