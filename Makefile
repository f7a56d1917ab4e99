# A thin front for CMake: `make` builds, `make demo` runs a demonstration, `make test` runs the
# tests. CMakeLists.txt and its presets do the work.
PREFIX ?= /usr/local
DESTDIR ?=
JOBS ?= $(shell nproc 2>/dev/null || echo 2)

# ON: also builds heddle-bench, the program behind `heddle bench`
BENCH ?= OFF

.PHONY: all deps build-deps release debug demo docs test test-all install ci format tidy clean

all: release

deps:
	@tools/install-deps

build-deps:
	@tools/install-deps --build

release:
	@cmake --preset $@ -DHEDDLE_BENCH=$(BENCH) >/dev/null
	@cmake --build --preset $@ -j $(JOBS)

debug:
	@cmake --preset $@ >/dev/null
	@cmake --build --preset $@ -j $(JOBS)

demo: build-deps
	@$(MAKE) --no-print-directory release BENCH=ON
	@mkdir -p build/demo && rm -f build/demo/demo.trace*
	HEDDLE_TRACE=build/demo/demo.trace build/release/heddle bench lanes --quick
	@build/release/heddle report build/demo/demo.trace* -o build/demo/report.html
	@echo "what this run did, and where its time went: $(CURDIR)/build/demo/report.html"

# Makes the reference of the headers: build/reference/index.html and manual pages. Later `make
# install` installs the manual pages. Needs Doxygen.
docs:
	@tools/make-reference

# Runs the tier `quick`: every behaviour once. The last line lists the missing optional parts. Most
# tests mostly wait, so three tests run for each processor.
test: deps
	@$(MAKE) --no-print-directory debug
	ctest --preset debug -L '^quick$$' -j $$((3 * $(JOBS))); status=$$?; tools/left-out build/debug; exit $$status

# Runs all tiers: quick, full (the other placements) and stress.
test-all: deps
	@$(MAKE) --no-print-directory debug
	ctest --preset debug -j $$((3 * $(JOBS))); status=$$?; tools/left-out build/debug; exit $$status

install:
	@cmake --preset release -DHEDDLE_BENCH=$(BENCH) -DCMAKE_INSTALL_PREFIX="$(PREFIX)" >/dev/null
	@cmake --build --preset release -j $(JOBS)
	DESTDIR="$(DESTDIR)" cmake --install build/release

ci:
	.ci/run

format:
	git ls-files -z --cached --others --exclude-standard '*.c' '*.h' '*.cpp' '*.hpp' '*.cu' | xargs -0 clang-format -i

tidy:
	tools/check-tidy --all

clean:
	rm -rf build
