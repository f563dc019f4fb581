# Everything that is done with the project; `make help` lists it.

.PHONY: help test tools lint docs unit doctests python python-interop python-api python-wheel onnx mpi slurm two-hosts fresh-machine deny bench figures predictions bench-collectives bench-blur bench-copies bench-gather bench-large bench-networks bench-nufft bench-onnx bench-photograph bench-reconstruction bench-scratch bench-shards bench-studies bench-tiling bench-tomography neon fuzz soak endurance fmt clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 15

# What the default build leaves out: all of it is checked, and all but MPI is in the tests without a launcher.
FEATURES = --features haloscope-cli/hdf5,haloscope-cli/zarr,haloscope-cli/parquet,haloscope-onnx/runtime
ALL_FEATURES = $(FEATURES),haloscope-cli/mpi,haloscope-comm/mpi,haloscope-py/mpi

# The feature `onnx` of the command and of Python is in the builds of no other tests than its own.
LINT_FEATURES = $(ALL_FEATURES),haloscope-cli/onnx,haloscope-py/onnx

# Every stage can be made alone. The stages share builds of what does not depend on the stage.
STAGES = tools lint docs unit doctests python onnx mpi-openmpi mpi-mpich slurm deny

test: ## install what the tests need, run all stages, and say which passed, failed or were skipped
	+@scripts/stages $(STAGES)

tools: ## install the MPI libraries and cargo tools that the tests need
	scripts/install-tools

fmt: ## format the sources
	cargo fmt --all

lint: ## check the format, and clippy with warnings denied
	cargo fmt --all --check
	MPICC=mpicc.openmpi cargo clippy --workspace --all-targets $(LINT_FEATURES) -- -D warnings

docs: ## build the documentation, warnings denied
	MPICC=mpicc.openmpi RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps $(LINT_FEATURES)

# Random cases are the same in every run; make soak draws new ones.
unit: export PROPTEST_RNG_SEED = 1
unit: ## the tests that need no launcher
	scripts/nextest --workspace $(FEATURES)

doctests: ## the examples of the documentation
	cargo test --workspace --doc $(FEATURES)

python python-interop python-api: export FEATURES := $(FEATURES)
python: ## the Python package on numpy 1.26 and 2, its types and its stubs
	scripts/python-test

python-interop: ## the Python package with torch, deepinv, PyLops and ASTRA, which are gigabytes
	scripts/python-test interop

python-api: ## the reference of the Python package, from its docstrings, in docs/python-api
	scripts/python-test api

python-wheel: ## the wheel that `pip install .` builds, in target/wheels
	python3 -m pip wheel . --no-deps -w target/wheels

onnx: export FEATURES := $(FEATURES)
onnx: ## exported networks in the onnx package, and ONNX Runtime as an engine, also in Python
	scripts/onnx-test
	FEATURES="$(FEATURES),haloscope-cli/onnx,haloscope-py/onnx" scripts/python-test onnx

mpi: mpi-openmpi mpi-mpich ## the tests under mpirun, of both MPI libraries

# A program is linked to one MPI library. A profile of its own for mpi-sys, which changes nothing in it, gives each
# library its own build of mpi-sys and of what depends on it; all other dependencies are those of `make unit`.
UNITS_openmpi = 2
UNITS_mpich = 3
mpi-% soak-% slurm: export MPICC = mpicc.$(LIBRARY)
mpi-% soak-% slurm: export MPIRUN = mpirun.$(LIBRARY)
mpi-% soak-% slurm: OWN_BUILD = --config profile.test.package.mpi-sys.codegen-units=$(UNITS_$(LIBRARY))
mpi-% soak-% slurm: MPI = --workspace $(ALL_FEATURES) $(OWN_BUILD)
mpi-%: LIBRARY = $*
mpi-%:
	cargo build --profile test $(MPI) --bins --example rank_process --example distributed_rank \
		--example checkpoint_job --example quickstart
	scripts/nextest $(MPI) --test mpi
	FEATURES="$(ALL_FEATURES) $(OWN_BUILD)" scripts/python-test mpi

# MPICH's processes find each other by srun's PMI2. Code 77 is that of a Slurm that cannot be started.
slurm: LIBRARY = mpich
slurm: ## submit jobs to a real Slurm, which is started for it
	cargo nextest run $(MPI) --test slurm --no-run
	scripts/slurm-test scripts/nextest $(MPI) --test slurm --test-threads 1 \
		|| { [ $$? = 77 ] && echo "stage skipped"; }

two-hosts: export MPICC = mpicc.mpich
two-hosts: ## run over two network namespaces with mpirun; as root, with openssh-server
	cargo build --release --features mpi --target-dir target/mpich
	scripts/two-hosts target/mpich/release/haloscope demo --size 64 --json || [ $$? = 77 ]

fresh-machine: ## both commands of the README in a clean Debian; as root, with debootstrap; the log goes to bench/runs
	scripts/fresh-machine

deny: ## licences, sources and known holes of the dependencies
	cargo deny --log-level error check bans licenses sources
	@if cargo deny --log-level off fetch db 2>/dev/null; then cargo deny check advisories; \
	else echo "skipped: known holes of dependencies: the advisory database cannot be reached from here"; fi

BENCH_PYTHON = .venv/bin/python

$(BENCH_PYTHON):
	python3 -m venv .venv
	.venv/bin/pip install --quiet -r bench/requirements.txt

# Today's results on this machine.
RUN := bench/runs/$(shell date +%F)-$(shell sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1 | tr 'A-Z ' 'a-z-')
COMPARE = $(BENCH_PYTHON) bench/compare.py --folder $(RUN)

bench: bench-collectives bench-blur bench-gather bench-networks bench-nufft bench-reconstruction bench-shards bench-tiling bench-tomography ## compare with the peers; results go to bench/runs

RANKS = release/examples/bench_collectives

bench-collectives: tools $(BENCH_PYTHON)
	cargo build --release -p haloscope-comm --examples
	MPICC=mpicc.openmpi cargo build --release -p haloscope-comm --examples --features mpi --target-dir target/openmpi
	MPICC=mpicc.mpich cargo build --release -p haloscope-comm --examples --features mpi --target-dir target/mpich
	$(COMPARE) collectives --rounds 5 --baseline Gloo \
		--peer "Threads=target/$(RANKS) threads" \
		--peer "Mpi on Open MPI=mpirun.openmpi -n 2 target/openmpi/$(RANKS) mpi" \
		--peer "Mpi on MPICH=mpirun.mpich -n 2 target/mpich/$(RANKS) mpi" \
		--peer "Open MPI itself=mpirun.openmpi -n 2 target/openmpi/$(RANKS) mpi-native" \
		--peer "MPICH itself=mpirun.mpich -n 2 target/mpich/$(RANKS) mpi-native" \
		--peer "Gloo=$(BENCH_PYTHON) bench/peers/gloo.py"

# No peer is charged for the page faults of glibc's allocator.
bench-networks: export MALLOC_MMAP_THRESHOLD_ = 4294967296
bench-networks: export MALLOC_TRIM_THRESHOLD_ = 17179869184
bench-networks: ROUNDS = 3
bench-networks: $(BENCH_PYTHON)
	cargo build --release -p haloscope-nn --examples
	for threads in 1 2; do \
		peer="$(BENCH_PYTHON) bench/peers/networks.py --threads $$threads --repeats 2"; \
		$(COMPARE) networks-$$threads --rounds $(ROUNDS) --reference haloscope \
			--peer "haloscope=target/release/examples/bench_networks --threads $$threads" \
			--peer "PyTorch=$$peer torch-nchw" \
			--peer "PyTorch channels-last=$$peer torch-channels-last" \
			--peer "PyTorch compiled=$$peer torch-compile" \
			--peer "ONNX Runtime=$$peer onnxruntime" \
			--peer "OpenVINO=$$peer openvino" || exit 1; \
	done

# Plans are made once; the transforms are compared.
bench-nufft: export MALLOC_MMAP_THRESHOLD_ = 4294967296
bench-nufft: export MALLOC_TRIM_THRESHOLD_ = 17179869184
bench-nufft: ROUNDS = 3
bench-nufft: $(BENCH_PYTHON)
	cargo build --release -p haloscope --example bench_nufft
	for threads in 1 2; do \
		peer="$(BENCH_PYTHON) bench/peers/nufft.py --threads $$threads"; \
		$(COMPARE) nufft-$$threads --rounds $(ROUNDS) --reference haloscope \
			--peer "haloscope=target/release/examples/bench_nufft --threads $$threads" \
			--peer "finufft=$$peer finufft" \
			--peer "ducc0=$$peer ducc0" || exit 1; \
	done

# ONNX Runtime through our engine and through Python, on the same files and the same library.
ONNX_PYTHON = .venv-onnx/bin/python
bench-onnx: ROUNDS = 3
bench-onnx: export ORT_DYLIB_PATH = $(wildcard $(CURDIR)/.venv-onnx/lib/python3*/site-packages/onnxruntime/capi/libonnxruntime.*)
bench-onnx:
	cargo build --release -p haloscope-onnx --features runtime --example bench_runtime
	mkdir -p target/bench-onnx
	target/release/examples/bench_runtime export target/bench-onnx
	for threads in 1 2; do \
		$(ONNX_PYTHON) bench/compare.py onnx-$$threads --folder $(RUN) --rounds $(ROUNDS) --reference Python \
			--peer "haloscope=target/release/examples/bench_runtime run --threads $$threads" \
			--peer "Python=$(ONNX_PYTHON) bench/peers/exported.py target/bench-onnx --threads $$threads" || exit 1; \
	done

bench-blur: export MALLOC_MMAP_THRESHOLD_ = 4294967296
bench-blur: export MALLOC_TRIM_THRESHOLD_ = 17179869184
bench-blur: ROUNDS = 3
bench-blur: $(BENCH_PYTHON)
	cargo build --release -p haloscope --example bench_blur
	for threads in 1 2; do \
		peer="$(BENCH_PYTHON) bench/peers/blur.py --threads $$threads"; \
		$(COMPARE) blur-$$threads --rounds $(ROUNDS) --reference haloscope \
			--peer "haloscope=target/release/examples/bench_blur --threads $$threads" \
			--peer "deepinv BlurFFT=$$peer blur-fft" \
			--peer "deepinv Blur with FFT=$$peer blur-use-fft" \
			--peer "deepinv Blur=$$peer blur" || exit 1; \
	done


# Time and memory of an iteration, against a version before: the last one in which steps copied images and ranks kept all terms.
BEFORE = 572aae2
OLD = target/before
bench-copies: ROUNDS = 3
bench-copies: OPTIONS =
bench-copies: $(BENCH_PYTHON)
	git worktree remove --force $(OLD) 2>/dev/null || rm -rf $(OLD)
	git worktree add --force --detach $(OLD) $(BEFORE)
	sed "s/EngineOptions/Options/g" crates/haloscope/benches/copies.rs > $(OLD)/crates/haloscope/benches/copies.rs
	printf '\n[[example]]\nname = "bench_copies"\npath = "benches/copies.rs"\n' >> $(OLD)/crates/haloscope/Cargo.toml
	cargo build --release -p haloscope --example bench_copies
	cargo build --release --manifest-path $(OLD)/Cargo.toml --target-dir $(OLD)-build -p haloscope --example bench_copies
	$(COMPARE) copies --rounds $(ROUNDS) --reference before \
		--show "peak_mb:{:.0f} MB" --show "images_per_rank:{:.1f} images" \
		--peer "before=$(OLD)-build/release/examples/bench_copies $(OPTIONS)" \
		--peer "after=target/release/examples/bench_copies $(OPTIONS)"
	git worktree remove --force $(OLD)

# Trained weights are used where they are at hand, for a PSNR that means something; there are none of a DRUNet.
PROBLEM = target/bench-reconstruction
TRAINED = $(wildcard $(HALOSCOPE_DATA)/weights/dncnn20_color_blind_deepinv.pth)
WEIGHTS_dncnn = $(or $(TRAINED),$(PROBLEM)/dncnn.safetensors)
WEIGHTS_drunet = $(PROBLEM)/drunet.safetensors

bench-reconstruction: bench-reconstruction-dncnn bench-reconstruction-drunet

bench-reconstruction-%: export MALLOC_MMAP_THRESHOLD_ = 4294967296
bench-reconstruction-%: export MALLOC_TRIM_THRESHOLD_ = 17179869184
bench-reconstruction-%: ROUNDS = 1
bench-reconstruction-%: OPTIONS = $(PROBLEM) --weights $(WEIGHTS_$*) --iterations 10 --threads 2
bench-reconstruction-%: TILES = --patch 256 --overlap 64
bench-reconstruction-%: $(BENCH_PYTHON)
	cargo build --release -p haloscope --example bench_reconstruction
	target/release/examples/bench_reconstruction prepare $(PROBLEM)
	$(COMPARE) reconstruction-$* --rounds $(ROUNDS) --reference haloscope \
		--show "peak_mb:{:.0f} MB" --show "psnr_db:{:.3f} dB" \
		--peer "haloscope=target/release/examples/bench_reconstruction run $(OPTIONS)" \
		--peer "haloscope in tiles=target/release/examples/bench_reconstruction run $(OPTIONS) $(TILES)" \
		--peer "deepinv=$(BENCH_PYTHON) bench/peers/reconstruction.py untiled $(OPTIONS) --network $*" \
		--peer "deepinv compiled=$(BENCH_PYTHON) bench/peers/reconstruction.py compiled $(OPTIONS) --network $*" \
		--peer "deepinv in tiles=$(BENCH_PYTHON) bench/peers/reconstruction.py tiled $(OPTIONS) --network $* $(TILES)"

# Tiles on one and two ranks; no peer has the same network at hand.
bench-tiling: ROUNDS = 3
bench-tiling: $(BENCH_PYTHON)
	cargo build --release -p haloscope --examples
	$(COMPARE) tiling --rounds $(ROUNDS) --peer "haloscope=target/release/examples/bench_tiling"

# One network on two ranks, against two networks side by side.
bench-shards: export OMPI_ALLOW_RUN_AS_ROOT = 1
bench-shards: export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM = 1
bench-shards: ROUNDS = 1
bench-shards: tools $(BENCH_PYTHON)
	cargo build --release -p haloscope --example bench_shards
	MPICC=mpicc.openmpi cargo build --release -p haloscope --example bench_shards --features mpi --target-dir target/openmpi
	$(COMPARE) shards --rounds $(ROUNDS) --show "share_of_the_machine:{:.1%} of the machine" \
		--show "plain_efficiency:{:.1%} plain" --show "exchange_seconds:{:.4f} s in messages" \
		--peer "threads=target/release/examples/bench_shards" \
		--peer "Open MPI=mpirun.openmpi -n 2 target/openmpi/release/examples/bench_shards"

# A volume of 512³ voxels in a scratch folder, with at most 2 GB of memory.
bench-scratch: SIZE = 512
bench-scratch: VIEWS = 256
bench-scratch: LIMIT = 2GB
bench-scratch: $(BENCH_PYTHON) ## a job larger than memory: bits, bytes and memory against the plan
	cargo build --release
	$(BENCH_PYTHON) bench/scratch.py --size $(SIZE) --views $(VIEWS) --limit $(LIMIT) --folder target/bench-scratch $(OPTIONS)

# An image of 16384² in shards, on four processes with 3 GB of address space each. PHOTOGRAPHS is a folder of pictures.
LARGE = target/bench-large
PHOTOGRAPHS = $(HALOSCOPE_DATA)/images/free_photos
bench-large: export OMPI_ALLOW_RUN_AS_ROOT = 1
bench-large: export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM = 1
bench-large: tools $(BENCH_PYTHON)
	MPICC=mpicc.openmpi cargo build --release --features mpi --target-dir target/openmpi
	mkdir -p $(RUN)/shards
	$(BENCH_PYTHON) bench/large_image.py make $(LARGE) --photographs $(PHOTOGRAPHS)
	$(BENCH_PYTHON) bench/large_image.py run $(LARGE) --command target/openmpi/release/haloscope \
		--launcher "mpirun.openmpi --oversubscribe -n" --ranks 4 --limit 3000 --out $(RUN)/shards/large-image.json

# A photograph of 100 megapixels with DRUNet, within 4 GB of memory.
bench-photograph: $(BENCH_PYTHON)
	cargo build --release
	cargo build --release -p haloscope --example bench_reconstruction
	target/release/examples/bench_reconstruction prepare $(PROBLEM)
	$(BENCH_PYTHON) bench/large_photograph.py make target/bench-photograph --photographs $(PHOTOGRAPHS)
	for step in run exact compare; do \
		$(BENCH_PYTHON) bench/large_photograph.py $$step target/bench-photograph --weights $(WEIGHTS_drunet) \
			--out $(RUN)/waves/photograph.json || exit 1; \
	done

# Three ways to gather measurements; none is a peer of ours.
bench-gather: $(BENCH_PYTHON)
	cargo build --release -p haloscope --examples
	$(COMPARE) gather --rounds 3 --peer "haloscope=target/release/examples/bench_gather"

bench-tomography: export MALLOC_MMAP_THRESHOLD_ = 4294967296
bench-tomography: export MALLOC_TRIM_THRESHOLD_ = 17179869184
bench-tomography: ROUNDS = 3
bench-tomography: $(BENCH_PYTHON)
	cargo build --release -p haloscope --examples
	for threads in 1 2; do \
		peer="$(BENCH_PYTHON) bench/peers/tomography.py --threads $$threads --repeats 1"; \
		$(COMPARE) tomography-$$threads --rounds $(ROUNDS) --reference haloscope \
			--peer "haloscope=target/release/examples/bench_tomography --threads $$threads" \
			--peer "ASTRA linear=$$peer astra-linear" \
			--peer "ASTRA line=$$peer astra-line" \
			--peer "deepinv=$$peer deepinv" \
			--peer "deepinv, inexact adjoint=$$peer deepinv-fast" \
			--peer "RTK=$$peer rtk" || exit 1; \
	done

# How reconstructions scale, on threads and on processes; memory, batches, deepinv. About half an hour on two cores.
STUDIES = $(RUN)/studies
STUDY = target/openmpi/release/haloscope bench

bench-studies: export OMPI_ALLOW_RUN_AS_ROOT = 1
bench-studies: export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM = 1
bench-studies: tools $(BENCH_PYTHON) ## measure scaling, memory and batches; results go to bench/runs
	MPICC=mpicc.openmpi cargo build --release --features mpi --target-dir target/openmpi
	$(STUDY) scaling --out $(STUDIES) --mode strong,weak,contention --backend threads,mpi --launcher "mpirun.openmpi -n" \
		--iterations 5 --untiled
	$(STUDY) scaling --out $(STUDIES) --count-only --layout replicated,sharded
	$(STUDY) memory --out $(STUDIES) --budgets whole,waves
	$(STUDY) batch --out $(STUDIES)
	$(STUDY) overlap --out $(STUDIES)
	$(STUDY) compare --out $(STUDIES) --python $(BENCH_PYTHON) --repetitions 1 --ranks 1,2 --cut whole,tiles
	$(STUDY) predict $(STUDIES) --cluster bench/cluster.toml --problem deblur --sizes 8192

# What the model says of the published sizes on both described clusters, by the rows of those studies, and a picture of it beside what others
# published.
PREDICTED = --ranks 1,2,4,8,16,32,64,128,256,512,1024
CLUSTER_cpu = bench/cluster.toml
CLUSTER_gpu = bench/cluster-gpu.toml
predictions: predictions-cpu predictions-gpu ## predict the published experiments from the studies; the curves go to docs/scaling
	python3 bench/curves.py --published bench/published.json --predictions $(RUN)/predictions --out docs/scaling/curves.svg

predictions-%: OUT = $(RUN)/predictions/$*
predictions-%: SAID = $(RUN)/predictions/predict-$*.txt
predictions-%: PREDICT = target/release/haloscope bench predict $(STUDIES) --out $(OUT) --cluster $(CLUSTER_$*) $(PREDICTED)
predictions-%:
	cargo build --release
	rm -rf $(OUT) && mkdir -p $(OUT)
	$(PREDICT) --problem deblur --sizes 2048,4096,8192 > $(SAID)
	$(PREDICT) --problem tomography-3d --sizes 512,1024 >> $(SAID)

figures: export HALOSCOPE_WRITE_FIGURES = 1
figures: ## write the figures of the documents anew from their raw files, and check that all agree
	cargo test -p haloscope-study --test figures -- --exact the_figures_of_the_documents_are_those_of_the_raw_files

# The target is installed with `rustup target add aarch64-unknown-linux-gnu`, the rest by the packages
# gcc-aarch64-linux-gnu and qemu-user.
neon: export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER = aarch64-linux-gnu-gcc
neon: export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER = qemu-aarch64 -L /usr/aarch64-linux-gnu
neon: ## test the network engine's NEON kernels in an emulator
	@if [ -d "$$(rustc --print sysroot)/lib/rustlib/aarch64-unknown-linux-gnu" ] \
		&& command -v aarch64-linux-gnu-gcc > /dev/null && command -v qemu-aarch64 > /dev/null; then \
		cargo test --target aarch64-unknown-linux-gnu -p haloscope-nn --lib --test engine; \
	else echo "skipped: NEON, which needs the aarch64 target, gcc-aarch64-linux-gnu and qemu-user"; fi

FUZZ_SECONDS = 60

# Sanitizers are unstable options of the compiler, which the variable allows on a stable one. No input is
# longer than 4 kB, so whatever asks for more memory than this believes what a file claims.
fuzz: export RUSTC_BOOTSTRAP = 1
fuzz: ## fuzz the readers of weights, each target for FUZZ_SECONDS
	@if cargo fuzz --version > /dev/null 2>&1; then \
		cd crates/haloscope-nn && python3 fuzz/seeds.py && for target in safetensors pytorch pickle; do \
			cargo fuzz run $$target -- -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -timeout=10 \
				-malloc_limit_mb=128 -rss_limit_mb=2048 || exit 1; \
		done; \
	else echo "skipped: fuzzing, which needs cargo-fuzz"; fi

# Builds are those of `make test`, which makes them without increments.
soak soak-%: export CARGO_INCREMENTAL = 0
UNIT_SOAK = cargo nextest run --workspace $(FEATURES) -E
soak: tools ## the long tests: every fault and kill 50 times, new random cases, all sizes, messages of more than 2^31 bytes
	HALOSCOPE_HUGE=1 cargo nextest run --release -p haloscope-comm --no-capture -E 'binary(huge)'
	$(UNIT_SOAK) 'package(haloscope) & (kind(lib) | binary(adjoint) | binary(fidelity) | binary(least_squares))'
	HALOSCOPE_SIZES=all $(UNIT_SOAK) 'package(haloscope) & binary(exact) & test(every_size)'
	HALOSCOPE_KILLS=50 $(UNIT_SOAK) 'binary(interrupted) | binary(checkpoint_kill)' --no-capture
	$(MAKE) soak-openmpi soak-mpich

soak-%: LIBRARY = $*
soak-%: export HALOSCOPE_FAULT_REPEATS = 50
soak-%: export HALOSCOPE_KILLS = 50
soak-%:
	cargo build --profile test $(MPI) --bins --example rank_process --example distributed_rank \
		--example checkpoint_job --example quickstart
	cargo nextest run $(MPI) --test mpi

MINUTES = 60
endurance: export OMPI_ALLOW_RUN_AS_ROOT = 1
endurance: export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM = 1
endurance: tools ## an hour of reconstructions under kills, stalls, signals and full disks; the log goes to bench/runs
	MPICC=mpicc.openmpi cargo build --release --features mpi --target-dir target/openmpi
	python3 bench/endurance.py --program target/openmpi/release/haloscope --launcher "mpirun.openmpi --oversubscribe -n" \
		--minutes $(MINUTES) --out $(RUN)/endurance.jsonl

clean: ## remove what was built
	cargo clean
	rm -rf .venv .venv-onnx .venv-python-* python/haloscope/*.so
