"""kstore measured beside its peers and the machine; see docs/benchmarks.md."""

import os

# numpy would start threads that nothing here uses, and with them every system call of this process costs more
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
