"""Set-up shared by all tests: the kernel cache, isolation from the user's files, a look-out for what a test leaks."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

# Before anything imports numba, and before tests get a cache folder of their own: or each session would compile anew.
with contextlib.suppress(ImportError):  # tests on a machine with a GPU run without it
    import platformdirs

    os.environ.setdefault("NUMBA_CACHE_DIR", platformdirs.user_cache_dir("hogwild"))
# One thread for torch and NumPy, here and in what tests start: several wait for each other by spinning, and where tests
# run side by side that takes most of the time (the GPU's stand-in: ten times as long); torch rounds by their number.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import ctypes
import gc
import multiprocessing.forkserver as forkserver
import multiprocessing.resource_tracker as resource_tracker
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import pytest

from hogwild.hosts import fork_server
from scripts.campaigns.common import descendants

ROOT = Path(__file__).resolve().parents[1]
PR_SET_CHILD_SUBREAPER = 36
LONGEST = ("test_modes.py", "test_docs.py", "test_wheel.py", "test_campaigns.py")
GRACE = 15.0  # seconds in which what a test left may still go, on a busy machine

# Every commit is tried on the same examples, however slow the machine; `--hypothesis-profile search` draws others.
for profile, same in (("gate", True), ("search", False)):
    hypothesis.settings.register_profile(
        profile,
        derandomize=same,
        database=None,
        deadline=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
hypothesis.settings.load_profile("gate")


def pytest_configure(config: pytest.Config) -> None:
    # A shell ignores Ctrl-C for a job in the background, and so would every command that a test starts and interrupts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Triton's kernels run in its interpreter, which must be set before they are imported; with `-m gpu` on a GPU.
    if config.getoption("markexpr") != "gpu":
        os.environ["TRITON_INTERPRET"] = "1"
    # Orphans of a command that a test started are then handed to this process, where `no_leaks` sees them.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in LONGEST)  # or one core would end with them while the other idles


def pytest_collection_finish() -> None:
    # A full collection walks every module, test and compiled kernel there is, and Numba sets off many of them.
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder of the real data sets (never part of the repository); tests that ask for it skip where there is none."""
    folder = Path(os.environ.get("HOGWILD_TEST_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip("no real data: set HOGWILD_TEST_DATA")
    return folder


@pytest.fixture(scope="module")
def pools() -> Iterator[Callable[..., Any]]:
    """``pools(host, workers)``: workers that the tests of a file share."""
    from hogwild.training.engine import start_pool

    made = {key: start_pool(*key) for key in (("threads", 1), ("threads", 2), ("processes", 2))}
    yield lambda host, workers=2: made[host, workers]
    for pool in made.values():
        pool.close()


@pytest.fixture(scope="session", autouse=True)
def isolated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One throw-away user cache for the session (subprocesses inherit it), and no settings from the user's shell."""
    patch = pytest.MonkeyPatch()
    patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("user-cache")))
    patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("user-data")))
    for name in ("HOGWILD_DATA", "HOGWILD_DEBUG", "FORCE_COLOR", "COLUMNS", "LINES"):
        patch.delenv(name, raising=False)
    patch.setenv("NO_COLOR", "1")
    patch.setenv("TERM", "xterm")  # on a dumb one nothing is shown live
    yield
    patch.undo()


@pytest.fixture(scope="session", autouse=True)
def one_signature_per_kernel() -> Iterator[None]:
    """Fail the session's last test if an epoch loop was compiled twice: some array or number changed its type."""
    yield
    if "numba" not in sys.modules:
        return
    from numba.core.dispatcher import Dispatcher

    kernels = [found for found in gc.get_objects() if issubclass(type(found), Dispatcher)]  # isinstance wakes proxies
    kernels = [kernel for kernel in kernels if ".<locals>." in kernel.py_func.__qualname__]  # what factories make
    for kernel in kernels:
        if kernel.py_func.__module__.startswith("hogwild.") and len(kernel.signatures) > 1:
            differing = {str(types) for types in zip(*kernel.signatures) if len(set(types)) > 1}
            cells = [cell.cell_contents for cell in kernel.py_func.__closure__ or ()]
            name = f"{kernel.py_func.__module__}.{kernel.py_func.__qualname__}{cells}"
            pytest.fail(f"{name} was compiled for several types: {'; '.join(differing)}", pytrace=False)


@pytest.fixture(autouse=True)
def no_leaks() -> Iterator[None]:
    """Fail a test that leaves a process or a shared-memory segment behind (after ``GRACE``)."""
    processes, segments = descendants(), set(os.listdir("/dev/shm"))
    yield
    deadline = time.monotonic() + GRACE
    while True:
        leaked = descendants() - processes - helpers()
        left = {name for name in set(os.listdir("/dev/shm")) - segments if not of_others(name)}
        if not leaked and not left:
            return
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
    named = {pid: command_of(pid) for pid in leaked}
    for pid in leaked:  # so that the next test starts clean
        os.kill(pid, signal.SIGKILL)
    pytest.fail(f"leaked processes {named or 'none'}, segments in /dev/shm {sorted(left) or 'none'}", pytrace=False)


def helpers() -> set[int | None]:
    """Processes that serve all tests: fork servers, and the trackers of Python and of joblib."""
    loky = sys.modules.get("joblib.externals.loky.backend.resource_tracker")
    trackers = [module._resource_tracker._pid for module in (resource_tracker, loky) if module]
    return {forkserver._forkserver._forkserver_pid, fork_server.pid(), *trackers}


def of_others(segment: str) -> bool:
    """Whether a living process that is none of ours made it: tests run side by side."""
    if segment.startswith(("joblib_", "sem.loky-", "cuda.shm.")):  # of scikit-learn's workers, and of a GPU's driver
        return True
    maker = re.search(r"_(\d+)_", segment)
    if maker is None:
        return False
    pid = int(maker[1])
    return os.path.exists(f"/proc/{pid}") and pid != os.getpid() and pid not in descendants()


def command_of(pid: int) -> str:
    try:
        return Path("/proc", str(pid), "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return "ended"
