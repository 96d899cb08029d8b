"""Where Dask is not installed, nothing here is collected."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

collect_ignore_glob = [] if find_spec("distributed") else ["*"]


@pytest.fixture(scope="session")
def client():
    """Two workers in this process."""
    from distributed import Client

    with Client(processes=False, n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        yield client
