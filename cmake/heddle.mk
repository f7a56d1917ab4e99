# heddle.mk - rules for make that compile kernels with `heddle cc`.
#
#     HEDDLE := $(shell pkg-config --variable=tool heddle)
#     include $(shell pkg-config --variable=makefile heddle)
#
#   scale.hdk                   from scale.c, kernel source
#   k.fatbin                    from k.cu or k.cuh, CUDA C++
#   scale_hdk.c, scale_hdk.h    from scale.c: C source that has the file as scale_hdk and scale_hdk_size, and its header
#   k_fatbin.c, k_fatbin.h      the same from k.cu
#
# What includes such a header depends on it: `main.o: scale_hdk.h`.
# HEDDLE is the tool, HEDDLE_CCFLAGS has its options. A changed header builds its kernels anew: HEDDLE_DEPENDS are the rules about that.
HEDDLE ?= heddle
HEDDLE_CCFLAGS ?=
HEDDLE_DEPENDS ?= $(wildcard *.hdk.d *.fatbin.d *_hdk.d *_fatbin.d */*.hdk.d */*.fatbin.d */*_hdk.d */*_fatbin.d)

%.hdk: %.c
	$(HEDDLE) cc $(HEDDLE_CCFLAGS) --depfile $@.d -o $@ $<

%.fatbin: %.cu
	$(HEDDLE) cc $(HEDDLE_CCFLAGS) --depfile $@.d -o $@ $<

%.fatbin: %.cuh
	$(HEDDLE) cc $(HEDDLE_CCFLAGS) --depfile $@.d -o $@ $<

%_hdk.c %_hdk.h: %.c
	$(HEDDLE) cc $(HEDDLE_CCFLAGS) --embed $(notdir $*)_hdk --depfile $*_hdk.d -o $*_hdk.c $<

%_fatbin.c %_fatbin.h: %.cu
	$(HEDDLE) cc $(HEDDLE_CCFLAGS) --embed $(notdir $*)_fatbin --depfile $*_fatbin.d -o $*_fatbin.c $<

# make removes what only led to something else, and would compile it anew each time
.PRECIOUS: %_hdk.c %_hdk.h %_fatbin.c %_fatbin.h

# these rules are not what `make` without a goal builds
heddle_goal := $(.DEFAULT_GOAL)
-include $(HEDDLE_DEPENDS)
.DEFAULT_GOAL := $(heddle_goal)
