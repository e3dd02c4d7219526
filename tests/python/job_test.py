# SPDX-License-Identifier: Apache-2.0
"""A program as a part of a job: signals that ask it to stop, communicators of mpi4py, its end."""

import os
import re
import shlex
import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import tutti

LAUNCHERS = ("OMPI_", "PMI", "MPI_", "SLURM_", "HYDRA_")


def await_signal(signals):
    """Python's own thread gets a signal at the next look; a handler in C, at once or soon after."""
    deadline = threading.Event()
    for _ in range(1000):
        if signals.received():
            return True
        deadline.wait(0.01)
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_to_one_rank_stops_all_after_the_same_call(number):
    before = signal.getsignal(number)
    with tutti.PreemptionSignals() as signals:
        kv = tutti.create("dist")
        kv.init(0, np.zeros(3, np.float32))
        kv.push(0, np.ones(3, np.float32))
        assert not signals.received() and not kv.stop_requested()
        kv.barrier()
        if kv.rank == kv.num_workers - 1:
            os.kill(os.getpid(), number)
            assert await_signal(signals)
        kv.push(0, np.ones(3, np.float32))
        assert kv.stop_requested()
        assert signals.received() == (kv.rank == kv.num_workers - 1)
        with pytest.raises(tutti.InvalidArgumentError, match="has one already"):
            tutti.PreemptionSignals()
        kv.barrier()
    assert signal.getsignal(number) == before and not signals.received()
    again = tutti.PreemptionSignals()
    assert not again.received() and not tutti.create("local").stop_requested()
    again.close()
    again.pass_on()  # has no effect any more


def test_a_wrong_argument_of_an_asynchronous_sum_on_one_rank_is_an_error_of_all():
    ranks = tutti.Communicator.world()
    own = np.ones(3, np.float32)
    for wrong in ({"input": "text"}, {"input": own, "op": "mean"}, {"input": [own]}):
        given = wrong if ranks.rank == ranks.size - 1 else {"input": own}
        pending = ranks.allreduce_async(**given)
        with pytest.raises(tutti.InvalidArgumentError, match="allreduce_async: ") as raised:
            pending.wait()
        assert raised.value.agreed and raised.value.recoverable
    ranks.allreduce_async(own).wait()
    assert (own == ranks.size).all()


def test_a_signal_that_is_passed_on_ends_the_program_as_ever():
    program = textwrap.dedent("""
        import os, signal, tutti
        signals = tutti.PreemptionSignals()
        os.kill(os.getpid(), signal.SIGTERM)
        print(signals.received(), flush=True)
        signals.pass_on()
    """)
    done = run(program)
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "True\n"), done.stderr


def test_a_program_that_stops_ends_with_a_code_of_its_own():
    assert tutti.EXIT_REQUEUE == 75


def test_a_communicator_of_mpi4py_gives_a_group():
    mpi4py = pytest.importorskip("mpi4py.MPI")
    world = tutti.Communicator.from_mpi(mpi4py.COMM_WORLD)
    assert (world.rank, world.size) == (mpi4py.COMM_WORLD.rank, mpi4py.COMM_WORLD.size)
    backwards = mpi4py.COMM_WORLD.Split(0, -world.rank)
    ranks = tutti.Communicator.from_mpi(backwards, timeout=600)
    assert ranks.rank == world.size - 1 - world.rank
    array = np.full(5, world.rank + 1, np.float32)
    ranks.allreduce(array)
    assert (array == world.size * (world.size + 1) / 2).all()
    kv = tutti.create(ranks)
    backwards.Free()  # the library has a duplicate
    kv.init(0, np.full(3, world.rank, np.float32))
    assert (kv.view(0).numpy() == world.size - 1).all()  # the first rank's value
    kv.push(0, np.ones(3, np.float32))
    assert (kv.view(0).numpy() == world.size).all()
    kv.close()
    ranks.close()
    world.close()


def test_show_config_names_the_library_and_the_mpi():
    done = run("import tutti; tutti.show_config()")
    assert done.returncode == 0, done.stderr
    said = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert said["tutti"].startswith(tutti.__version__) and "libtutti.so" in said["library"]
    assert re.match(r"\S.* \(\S*libtutti-mpi-\w+\.so\), \S*libmpi", said["MPI"]), said
    assert re.search(r"\(\S*(libtutti-mpi-\w+\.so)\)", said["MPI"])[1] in said["plug-ins"], said
    assert said["launcher"].startswith("none") and f"numpy {np.__version__}" in said["versions"]
    variables = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "1"}
    done = run("import tutti; tutti.show_config()", **variables)
    assert "\nMPI: no MPI (none)\n" in done.stdout, done.stdout
    assert "launcher: torchrun or its like (WORLD_SIZE=2, RANK=1)" in done.stdout, done.stdout


def test_what_is_no_communicator_of_mpi4py_is_one_sentence():
    for given in (None, 3, "world", object()):
        with pytest.raises(tutti.InvalidArgumentError, match="mpi4py") as raised:
            tutti.Communicator.from_mpi(given)
        assert "\n" not in str(raised.value)
    mpi4py = pytest.importorskip("mpi4py.MPI")
    with pytest.raises(tutti.Error, match="MPI_COMM_NULL"):
        tutti.Communicator.from_mpi(mpi4py.COMM_NULL)
    other = mpi4py.Get_library_version
    mpi4py.Get_library_version = lambda: "MPI of elsewhere, 1.0"
    try:
        with pytest.raises(tutti.InvalidArgumentError, match="compiled with the mpi.h of MPICH"):
            tutti.Communicator.from_mpi(mpi4py.COMM_WORLD)
    finally:
        mpi4py.Get_library_version = other


def clean_environment(**variables):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
    return kept | variables


def run(program, *launcher, **variables):
    """A sanitizer that is loaded before all else watches the program, not its launcher: mpirun 4.1
    reads a message that it has freed when a rank ends the job."""
    environment = dict(os.environ) if launcher else clean_environment(**variables)
    if launcher and "LD_PRELOAD" in environment:
        launcher = (*launcher, "env", f"LD_PRELOAD={environment.pop('LD_PRELOAD')}")
    return subprocess.run([*launcher, sys.executable, "-c", textwrap.dedent(program)], text=True,
                          env=environment, timeout=600, capture_output=True,
                          stdin=subprocess.DEVNULL)


@pytest.mark.parametrize("variables, is_launched", [
    ({}, False),
    ({"SLURM_NTASKS": "4", "SLURM_JOB_ID": "1"}, False),  # a batch script of sbatch's
    ({"SLURM_NTASKS": "4", "SLURM_STEP_ID": "4294967291", "SLURM_STEP_NUM_TASKS": "4",
      "SLURM_PROCID": "0"}, False),  # as its step is numbered
    ({"SLURM_NTASKS": "4", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4",
      "SLURM_PROCID": "0"}, True),
    ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"}, True),
    ({"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"}, False),
    ({"PMI_SIZE": "2", "PMI_RANK": "0"}, True),
])
def test_a_batch_script_is_no_job(variables, is_launched):
    done = run("""
        import tutti
        print(tutti._core.is_launched(), flush=True)
        raise KeyError("oops")
    """, **variables)
    assert done.stdout == f"{is_launched}\n"
    assert "KeyError: 'oops'" in done.stderr and "Traceback" in done.stderr
    assert done.returncode == (2 if is_launched else 1)


def test_threads_that_wait_when_python_ends_stay_where_they_are():
    done = run("""
        import ctypes, sys, threading, time
        import numpy as np, tutti
        kv = tutti._core.create("local")
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kv))  # nothing closes it
        kv.init(0, np.ones(3, np.float32))
        is_reached = threading.Event()
        kv.set_updater(lambda key, merged, stored: (is_reached.set(), time.sleep(3600)))
        pushed = kv.push_async(0, np.ones(3, np.float32))
        assert is_reached.wait(60)
        for _ in range(4):
            threading.Thread(target=pushed.wait, daemon=True).start()
        class Slow:
            def __del__(self, sleep=time.sleep):
                sleep(0.5)  # their waits look for signals meanwhile
        sys.slow = Slow()
    """)
    assert done.returncode == 0, done.stderr


def test_an_output_that_nobody_reads_does_not_keep_a_job():
    done = run("""
        import sys, tutti
        class Closed:
            def flush(self):
                raise BrokenPipeError("nobody reads")
        sys.stdout = Closed()
        raise KeyError("oops")
    """, OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_RANK="0")
    assert done.returncode == 2 and "KeyError: 'oops'" in done.stderr
    assert "excepthook" not in done.stderr


def test_a_package_among_the_files_of_another_project_is_refused(tmp_path):
    (tmp_path / "tutti").symlink_to(os.path.dirname(tutti.__file__))
    def imported():
        return subprocess.run([sys.executable, "-c", "import tutti"], text=True, timeout=600,
                              env=clean_environment(PYTHONPATH=str(tmp_path)), capture_output=True)
    assert imported().returncode == 0
    (tmp_path / "tutti-1.0.0.dist-info").mkdir()
    assert "pip uninstall tutti tutti-kvstore" in imported().stderr


@pytest.mark.parametrize("words, expected", [
    (["-np", "2", "train.py", "--x", "other.py"], ["-np", "2", sys.executable, "train.py"]),
    (["-np", "2", "python3", "train.py"], ["-np", "2", "python3", "train.py"]),
    (["-np", "2", "absent.py"], ["-np", "2", "absent.py"])])
def test_the_package_starts_jobs_by_its_own_launch_sh(words, expected, tmp_path, monkeypatch):
    from tutti.run import command

    monkeypatch.chdir(tmp_path)
    for name in ("train.py", "other.py"):
        (tmp_path / name).touch()
    shell, script, *given = command(words)
    assert shell == "bash" and os.access(script, os.X_OK)
    assert given[:len(expected)] == expected and given.count(sys.executable) <= 1


def mpirun():
    if "MPIRUN" not in os.environ:
        pytest.skip("MPIRUN names no launcher")  # as inside a job
    return shlex.split(os.environ["MPIRUN"])


def run_job(program, ranks=2):
    return run(program, *mpirun(), "-np", str(ranks))


def test_an_exception_on_one_rank_ends_the_job_with_its_traceback():
    done = run_job("""
        import numpy as np, tutti
        kv = tutti.create("dist")
        kv.init("w", np.zeros(3, np.float32))
        if kv.rank == 1:
            raise KeyError("oops")
        kv.push("w", np.ones(3, np.float32))
    """)
    assert done.returncode == 2
    assert done.stderr.count("Traceback") == 1 and "KeyError: 'oops'" in done.stderr


@pytest.mark.parametrize("environment", ["None", "dict(os.environ)"])
def test_a_program_that_a_rank_starts_does_not_take_its_place(environment):
    done = run_job(f"""
        import os, subprocess, sys, tutti
        kv = tutti.create("dist")
        child = "import tutti; tutti.create('local'); tutti.create('dist')"
        done = subprocess.run([sys.executable, "-c", child], env={environment}, text=True,
                              capture_output=True)
        kv.barrier()
        was_said = "was started by a rank" in done.stderr
        sys.stdout.write(f"{{done.returncode}} {{was_said}}\\n")  # whole, beside the other rank's
        sys.stdout.flush()
        """)
    assert (done.returncode, done.stdout.splitlines()) == (0, ["1 True"] * 2), done.stderr


def test_an_error_of_all_ranks_is_printed_once():
    done = run_job("""
        import numpy as np, tutti
        kv = tutti.create("dist")
        kv.init("w", np.zeros(3 + kv.rank, np.float32))
    """)
    assert done.returncode == 2
    assert done.stderr.count("Traceback") == 1 and "tutti.MismatchError" in done.stderr


def test_an_interrupt_ends_a_wait_and_then_the_job():
    done = run_job("""
        import os, signal, threading, time
        import numpy as np, tutti
        kv = tutti.create("dist")
        kv.init("w", np.zeros(3, np.float32))
        if kv.rank == 0:
            try:
                threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
                kv.barrier()
            except KeyboardInterrupt:
                print("interrupted", flush=True)
                raise
        time.sleep(3600)  # until the job ends
        kv.barrier()
    """)
    assert done.stdout == "interrupted\n" and done.returncode != 0
    assert "KeyboardInterrupt" in done.stderr


def test_a_job_of_the_packages_launcher_has_its_ranks(tmp_path):
    program = tmp_path / "train.py"
    program.write_text("import sys, tutti\nranks = tutti.Communicator.world()\n"
                       "sys.stdout.write(f\"{ranks.rank} {ranks.size}\\n\")\n")
    environment = clean_environment(MPIRUN=mpirun()[0])
    done = subprocess.run([sys.executable, "-m", "tutti.run", "-np", "2", "--oversubscribe",
                           str(program)], text=True, capture_output=True, env=environment,
                          timeout=600)
    assert sorted(done.stdout.split("\n")) == ["", "0 2", "1 2"], done.stdout + done.stderr
