/* test_host_containment.c - faults of kernels and copies on host devices: those that stay in their
 * device, and those that end the process.
 *
 * Promise: A faulting kernel ends its host device alone; signals from outside end the process.
 * Threads: the main one and the host provider's own; cases that end a process use a second one.
 *
 * Contained: faults that a processor reports (SIGSEGV, SIGBUS, SIGFPE, SIGILL) in kernels, copies
 * and fills. Not contained: sent signals, abort and exit. A second process, this program started
 * again, shows that these end it at once.
 */
#include "host_support.h"
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define SETTINGS "host_devices=2 host_memory=16M"
#define N_WORDS (GRANULE / 4)

static const int fault_signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
enum { N_SIGNALS = sizeof fault_signals / sizeof fault_signals[0] };

/* ---- the application's own handlers ---- */

static volatile sig_atomic_t handled[64];
static sigjmp_buf outside;
static volatile sig_atomic_t leave; /* the handler must not return */

static void on_signal(int number, siginfo_t *info, void *unused)
{
    (void)info, (void)unused;
    handled[number]++;
    if (leave) {
        leave = 0;
        siglongjmp(outside, 1);
    }
}

static struct sigaction before[N_SIGNALS];

static void install_handlers(void)
{
    for (int i = 0; i < N_SIGNALS; i++) {
        struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
        sigemptyset(&action.sa_mask);
        assert_int_equal(sigaction(fault_signals[i], &action, &before[i]), 0);
        handled[fault_signals[i]] = 0;
    }
}

static void remove_handlers(void)
{
    for (int i = 0; i < N_SIGNALS; i++) {
        assert_int_equal(sigaction(fault_signals[i], &before[i], NULL), 0);
    }
}

static void expect_handled(int segv, int bus, int fpe, int ill)
{
    assert_int_equal(handled[SIGSEGV], segv);
    assert_int_equal(handled[SIGBUS], bus);
    assert_int_equal(handled[SIGFPE], fpe);
    assert_int_equal(handled[SIGILL], ill);
}

static volatile char *inaccessible(void)
{
    return mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* Faults on the application's own thread, `depth` calls further down the stack; its handler jumps
 * out. */
static __attribute__((noinline)) void fault_outside(int depth)
{
    if (depth > 0) {
        volatile char frame[200] = {0};
        fault_outside(depth - 1);
        (void)frame[0];
        return;
    }
    volatile char *nothing = inaccessible();
    leave = 1;
    if (sigsetjmp(outside, 1) == 0) {
        nothing[0] = 1;
    }
    munmap((void *)(uintptr_t)nothing, 4096);
}

/* ---- faults of a kernel ---- */

typedef struct misdeed {
    const char *kernel;
    hdcu_result code;
} misdeed;

static const misdeed misdeeds[] = {
    {"set_far", HDCU_ERROR_ILLEGAL_ADDRESS},
    {"illegal", HDCU_ERROR_ILLEGAL_INSTRUCTION},
    {"recurse", HDCU_ERROR_ILLEGAL_ADDRESS}, /* past the end of its stack */
#ifdef __x86_64__
    {"divide", HDCU_ERROR_LAUNCH_FAILED}, /* other processors return a result */
#endif
};
enum { N_MISDEEDS = sizeof misdeeds / sizeof misdeeds[0] };

static hdcu_stream stream;
static hdcu_module module;

static hdcu_result launch(const char *name, void **parameters, unsigned blocks)
{
    return d->cuLaunchKernel(kernel_of(module, name), blocks, 1, 1, 64, 1, 1, 0, stream, parameters, NULL);
}

/* Launches the kernel on device 0. A kernel ignores parameters that it does not declare. */
static hdcu_result misbehave(const char *name, unsigned blocks)
{
    hdcu_deviceptr p = map_new(0, GRANULE);
    uint64_t second = strcmp(name, "set_far") == 0 ? GRANULE / 4 : 0;
    void *parameters[] = {&p, &second};
    OK(launch(name, parameters, blocks));
    return d->cuStreamSynchronize(stream);
}

static void begin(void)
{
    open_host(SETTINGS);
    use_device(1);
    use_device(0);
    OK(d->cuStreamCreate(&stream, HDCU_STREAM_NON_BLOCKING));
    module = load_kernels();
}

/* Checks that device 0 is lost with this code until it gets a new context, and that device 1 still
 * works. */
static void expect_lost(hdcu_result code)
{
    hdcu_deviceptr p;
    hdcu_context c1;
    uint32_t word = 0;
    assert_int_equal(d->cuCtxSynchronize(), code);
    assert_int_equal(d->cuMemAlloc(&p, 4), code);
    leave_device(0);
    use_device(0);
    OK(d->cuStreamCreate(&stream, HDCU_STREAM_NON_BLOCKING));
    module = load_kernels();
    p = map_new(0, GRANULE);
    OK(launch_add(kernel_of(module, "add"), stream, p, 3, 256));
    OK(d->cuStreamSynchronize(stream));
    OK(d->cuMemcpyDtoH(&word, p + 255 * 4, 4));
    assert_int_equal(word, 3);
    unmap(p, GRANULE);
    OK(d->cuDevicePrimaryCtxRetain(&c1, 1));
    OK(d->cuCtxPushCurrent(c1));
    p = map_new(1, GRANULE);
    OK(d->cuMemsetD32Async(p, 1, N_WORDS, NULL));
    OK(d->cuCtxSynchronize());
    unmap(p, GRANULE);
    OK(d->cuCtxPopCurrent(&c1));
    OK(d->cuDevicePrimaryCtxRelease(1));
}

static void end(void)
{
    leave_device(0);
    OK(d->cuDevicePrimaryCtxRelease(1));
    hdi_providers_close_driver(d);
}

static void faults_of_kernels_are_faults_of_their_device(void **state)
{
    (void)state;
    begin();
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < N_MISDEEDS; i++) {
            assert_int_equal(misbehave(misdeeds[i].kernel, round == 0 ? 1 : 40), misdeeds[i].code);
            expect_lost(misdeeds[i].code);
        }
    }
    end();
}

/* Memory whose file was cut shorter: SIGBUS. */
static void accesses_behind_the_end_of_a_file_are_faults(void **state)
{
    (void)state;
    begin();
    for (int what = 0; what < 4; what++) {
        int file = memfd_create("heddle-test", MFD_CLOEXEC);
        assert_int_equal(ftruncate(file, GRANULE), 0);
        unsigned char *pinned = mmap(NULL, GRANULE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        hdcu_deviceptr address = (uintptr_t)pinned, own = map_new(0, GRANULE);
        uint64_t index = GRANULE / 4 - 1;
        void *parameters[] = {&address, &index};
        OK(d->cuMemHostRegister(pinned, GRANULE, 0));
        OK(d->cuMemsetD32Async(address, 1, N_WORDS, stream));
        OK(d->cuStreamSynchronize(stream));
        assert_int_equal(ftruncate(file, 0), 0);
        switch (what) {
        case 0:
            OK(launch("set_far", parameters, 1));
            break;
        case 1:
            OK(d->cuMemsetD32Async(address, 2, N_WORDS, stream));
            break;
        case 2:
            OK(d->cuMemcpyAsync(own, address, GRANULE, stream));
            break;
        default:
            OK(d->cuMemcpyAsync(address, own, GRANULE, stream));
            break;
        }
        assert_int_equal(d->cuStreamSynchronize(stream), HDCU_ERROR_ILLEGAL_ADDRESS);
        expect_lost(HDCU_ERROR_ILLEGAL_ADDRESS);
        munmap(pinned, GRANULE);
        close(file);
    }
    end();
}

static void faults_of_others_go_to_their_own_handlers(void **state)
{
    (void)state;
    /* handlers installed before the library's handlers */
    install_handlers();
    begin();
    for (size_t i = 0; i < N_MISDEEDS; i++) {
        assert_int_equal(misbehave(misdeeds[i].kernel, 1), misdeeds[i].code);
        expect_lost(misdeeds[i].code);
    }
    expect_handled(0, 0, 0, 0);
    for (int i = 0; i < 20; i++) { /* each next one deeper, equally deep, or less deep */
        fault_outside(i * 7 % 11);
    }
    expect_handled(20, 0, 0, 0);
    handled[SIGSEGV] = 1;
    /* a sent signal is no fault, so it goes to the application */
    for (int i = 0; i < N_SIGNALS; i++) {
        raise(fault_signals[i]);
    }
    expect_handled(2, 1, 1, 1);
    for (int i = 0; i < N_SIGNALS; i++) { /* also if a kernel sends it */
        void *parameters[] = {(void *)(uintptr_t)&fault_signals[i]};
        OK(d->cuLaunchKernel(kernel_of(module, "send_signal"), 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
    }
    OK(d->cuStreamSynchronize(stream));
    expect_handled(3, 2, 2, 2);
    assert_int_equal(misbehave("set_far", 1), HDCU_ERROR_ILLEGAL_ADDRESS);
    expect_lost(HDCU_ERROR_ILLEGAL_ADDRESS);
    expect_handled(3, 2, 2, 2);
    /* handlers installed later, over the library's handlers */
    install_handlers();
    for (size_t i = 0; i < N_MISDEEDS; i++) {
        assert_int_equal(misbehave(misdeeds[i].kernel, 1), misdeeds[i].code);
        expect_lost(misdeeds[i].code);
        fault_outside(0);
        expect_handled((int)i + 1, 0, 0, 0);
    }
    remove_handlers();
    end();
}

/* ---- ends of the process ---- */

typedef struct end_of_process {
    const char *kernel;
    int32_t argument;
    bool by_signal;
} end_of_process;

static const end_of_process ends[] = {
    {"give_up", SIGABRT, true},
    {"send_signal", SIGKILL, true},
    {"send_signal", SIGSEGV, true}, /* sent, not a fault, and without a handler */
    {"end_process", 7, false},
};
enum { N_ENDS = sizeof ends / sizeof ends[0] };

static int misbehaving_process(int which)
{
    const struct rlimit no_core = {0, 0};
    int32_t argument = ends[which].argument;
    void *parameters[] = {&argument};
    alarm(ROLE_SECONDS);
    setrlimit(RLIMIT_CORE, &no_core);
    for (int i = 0; i < N_SIGNALS; i++) {
        signal(fault_signals[i], SIG_DFL);
    }
    begin();
    OK(d->cuLaunchKernel(kernel_of(module, ends[which].kernel), 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
    d->cuStreamSynchronize(stream);
    return 0;
}

static void abort_and_exit_end_the_process_at_once(void **state)
{
    (void)state;
    for (int i = 0; i < N_ENDS; i++) {
#if TEST_ASAN || TEST_TSAN
        if (!ends[i].by_signal) {
            continue; /* at exit, sanitizers cannot detect that they run on a kernel's stack */
        }
#endif
        char number[16];
        snprintf(number, sizeof number, "%d", i);
        role_process p = role_start("misbehave", number);
        int status = role_end(&p, false);
        if (ends[i].by_signal) {
            assert_true(WIFSIGNALED(status));
            assert_int_equal(WTERMSIG(status), ends[i].argument);
        } else {
            assert_true(WIFEXITED(status));
            assert_int_equal(WEXITSTATUS(status), ends[i].argument);
        }
    }
}

/* ---- handlers of the application that handle a fault otherwise ---- */

enum { ONE_SHOT, ON_TO_OURS, ON_TO_OURS_PLAIN, SENT_ON_TO_OURS, N_HANDLERS };

static volatile sig_atomic_t calls;
static struct sigaction ours;
static void (*ours_plain)(int);

static void note_call(void)
{
    if (++calls > 1) {
        _exit(3); /* called again: it failed */
    }
}

static void note(int number)
{
    (void)number;
    note_call();
}

static void pass_to_ours(int number, siginfo_t *info, void *where)
{
    note_call();
    ours.sa_sigaction(number, info, where);
}

static void pass_to_ours_plain(int number)
{
    note_call();
    ours_plain(number);
}

static int process_with_handler(int which)
{
    const struct rlimit no_core = {0, 0};
    struct sigaction action = {.sa_sigaction = pass_to_ours, .sa_flags = SA_SIGINFO};
    alarm(ROLE_SECONDS);
    setrlimit(RLIMIT_CORE, &no_core);
    signal(SIGSEGV, SIG_DFL);
    begin();
    assert_int_equal(misbehave("set_far", 1), HDCU_ERROR_ILLEGAL_ADDRESS);
    if (which == ONE_SHOT) {
        action.sa_flags = (int)SA_RESETHAND;
        action.sa_handler = note;
    }
    if (which == ON_TO_OURS_PLAIN) {
        ours_plain = signal(SIGSEGV, pass_to_ours_plain);
    } else {
        sigaction(SIGSEGV, &action, &ours);
    }
    /* its launches install the library's handlers over the new one */
    expect_lost(HDCU_ERROR_ILLEGAL_ADDRESS);
    if (which == SENT_ON_TO_OURS) {
        raise(SIGSEGV);
    } else {
        *inaccessible() = 1;
    }
    return 4;
}

static void what_the_application_gives_up_ends_the_process(void **state)
{
    (void)state;
    for (int i = 0; i < N_HANDLERS; i++) {
        char number[16];
        snprintf(number, sizeof number, "%d", i);
        role_process p = role_start("handler", number);
        int status = role_end(&p, false);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), SIGSEGV);
    }
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "handler") == 0) {
        return process_with_handler(atoi(argv[2]));
    }
    if (argc == 3 && strcmp(argv[1], "misbehave") == 0) {
        return misbehaving_process(atoi(argv[2]));
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults_of_kernels_are_faults_of_their_device),
        cmocka_unit_test(accesses_behind_the_end_of_a_file_are_faults),
        cmocka_unit_test(faults_of_others_go_to_their_own_handlers),
        cmocka_unit_test(abort_and_exit_end_the_process_at_once),
        cmocka_unit_test(what_the_application_gives_up_ends_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
