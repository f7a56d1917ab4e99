/* fake_toolkit_kernels.c - functions that imitate NVRTC and nvJitLink, and record their calls. It
 * is compiled into the shared object that test_compile.c opens. Threads: one. Locks: none.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SHOWN __attribute__((visibility("default")))

/* The recorded calls, and the answers to give; test_compile.c declares the same structure. */
typedef struct fake_toolkit {
    char fails[64]; /* the function that fails with `code` */
    int code;
    char log[512]; /* a zero follows */
    char options[256], kinds[64];
    int alive; /* programs and linkers */
    int archs[4], n_archs;
    int makes_cubin;
} fake_toolkit;

SHOWN extern fake_toolkit fake_toolkit_state;
fake_toolkit fake_toolkit_state;

static int asked(const char *name)
{
    return strcmp(fake_toolkit_state.fails, name) == 0 ? fake_toolkit_state.code : 0;
}

static void note_options(int n, const char *const *options)
{
    fake_toolkit_state.options[0] = '\0';
    for (int i = 0; i < n; i++) {
        strcat(strcat(fake_toolkit_state.options, options[i]), " ");
    }
}

static int give(const char *name, const char *text, size_t n, char *out)
{
    memcpy(out, text, n);
    return asked(name);
}

#define FAKE(name, ...)                                                                                                \
    SHOWN int name(__VA_ARGS__);                                                                                       \
    int name(__VA_ARGS__)

FAKE(nvrtcVersion, int *major, int *minor)
{
    *major = 13, *minor = 1;
    return asked("nvrtcVersion");
}
FAKE(nvrtcGetNumSupportedArchs, int *n)
{
    *n = fake_toolkit_state.n_archs;
    return asked("nvrtcGetNumSupportedArchs");
}
FAKE(nvrtcGetSupportedArchs, int *archs)
{
    memcpy(archs, fake_toolkit_state.archs, sizeof(int) * (size_t)fake_toolkit_state.n_archs);
    return asked("nvrtcGetSupportedArchs");
}
FAKE(nvrtcCreateProgram, void **out, const char *source, const char *name, int n, const char *const *headers,
     const char *const *names)
{
    (void)source, (void)name, (void)n, (void)headers, (void)names;
    int code = asked("nvrtcCreateProgram");
    *out = &fake_toolkit_state;
    fake_toolkit_state.alive += code == 0;
    return code;
}
FAKE(nvrtcDestroyProgram, void **p)
{
    fake_toolkit_state.alive--;
    *p = NULL;
    return 0;
}
FAKE(nvrtcAddNameExpression, void *p, const char *expression)
{
    (void)p, (void)expression;
    return asked("nvrtcAddNameExpression");
}
FAKE(nvrtcCompileProgram, void *p, int n, const char *const *options)
{
    (void)p;
    note_options(n, options);
    return asked("nvrtcCompileProgram");
}
FAKE(nvrtcGetProgramLogSize, void *p, size_t *bytes)
{
    (void)p;
    *bytes = strlen(fake_toolkit_state.log) + 1;
    return asked("nvrtcGetProgramLogSize");
}
FAKE(nvrtcGetProgramLog, void *p, char *out)
{
    (void)p;
    return give("nvrtcGetProgramLog", fake_toolkit_state.log, strlen(fake_toolkit_state.log) + 1, out);
}
FAKE(nvrtcGetLoweredName, void *p, const char *expression, const char **symbol)
{
    (void)p, (void)expression;
    *symbol = "_Z5mixedv";
    return asked("nvrtcGetLoweredName");
}
FAKE(nvrtcGetCUBINSize, void *p, size_t *bytes)
{
    (void)p;
    *bytes = fake_toolkit_state.makes_cubin ? 5 : 0;
    return asked("nvrtcGetCUBINSize");
}
FAKE(nvrtcGetCUBIN, void *p, char *out)
{
    (void)p;
    return give("nvrtcGetCUBIN", "cubin", 5, out);
}
FAKE(nvrtcGetPTXSize, void *p, size_t *bytes)
{
    (void)p;
    *bytes = 4;
    return asked("nvrtcGetPTXSize");
}
FAKE(nvrtcGetPTX, void *p, char *out)
{
    (void)p;
    return give("nvrtcGetPTX", "ptx", 4, out);
}
SHOWN const char *nvrtcGetErrorString(int code);
const char *nvrtcGetErrorString(int code)
{
    return code == 1 ? "out of memory" : "some error";
}

FAKE(nvJitLinkCreate, void **out, uint32_t n, const char **options)
{
    int code = asked("nvJitLinkCreate");
    note_options((int)n, options);
    fake_toolkit_state.kinds[0] = '\0';
    *out = &fake_toolkit_state;
    fake_toolkit_state.alive += code == 0;
    return code;
}
FAKE(nvJitLinkDestroy, void **l)
{
    fake_toolkit_state.alive--;
    *l = NULL;
    return 0;
}
FAKE(nvJitLinkAddData, void *l, int kind, const void *bytes, size_t n, const char *name)
{
    (void)l, (void)bytes, (void)n, (void)name;
    const char digit[] = {(char)('0' + kind), '\0'};
    strcat(fake_toolkit_state.kinds, digit);
    return asked("nvJitLinkAddData");
}
FAKE(nvJitLinkComplete, void *l)
{
    (void)l;
    return asked("nvJitLinkComplete");
}
FAKE(nvJitLinkGetLinkedCubinSize, void *l, size_t *bytes)
{
    (void)l;
    *bytes = 6;
    return asked("nvJitLinkGetLinkedCubinSize");
}
FAKE(nvJitLinkGetLinkedCubin, void *l, void *out)
{
    (void)l;
    return give("nvJitLinkGetLinkedCubin", "linked", 6, out);
}
FAKE(nvJitLinkGetErrorLogSize, void *l, size_t *bytes)
{
    (void)l;
    *bytes = strlen(fake_toolkit_state.log) + 1;
    return asked("nvJitLinkGetErrorLogSize");
}
FAKE(nvJitLinkGetErrorLog, void *l, char *out)
{
    (void)l;
    return give("nvJitLinkGetErrorLog", fake_toolkit_state.log, strlen(fake_toolkit_state.log) + 1, out);
}
