/* test_describe_image.c - parameters of a kernel, as PTX or a driver describes them, fit into a
 * launch, or the kernel is refused.
 *
 * Promise: Kernel parameters found in an image fit into a launch, or the kernel is refused.
 * Threads: one. Locks: none.
 */
#include "support/check.h"

#include <stdlib.h>
#include "kernel/describe_image.h"
#include "kernel/file.h"

static hd_status by_driver(uint16_t offset, uint16_t size, uint16_t last_offset, uint16_t last_size)
{
    static hdi_kernel_facts facts;
    hdi_signature signature = {.described = false};
    facts.n_params = 2;
    facts.params[0].offset = offset;
    facts.params[0].size = size;
    facts.params[1].offset = last_offset;
    facts.params[1].size = last_size;
    hd_status status = hdi_image_describe_by_driver(&facts, "some", &signature);
    free(signature.params);
    return status;
}

static void a_driver_tells_of_more_than_fits(void **state)
{
    (void)state;
    assert_ok(by_driver(0, 8, 8, 8));
    assert_ok(by_driver(0, 8, HDI_KERNEL_ARGUMENT_BYTES_MAX - 8, 8));
    assert_status(by_driver(0, 8, HDI_KERNEL_ARGUMENT_BYTES_MAX - 7, 8), HD_ERROR_LIMIT);
    assert_status(by_driver(0, 8, UINT16_MAX, UINT16_MAX), HD_ERROR_LIMIT);
    /* the last parameter is not the one at the end */
    assert_status(by_driver(UINT16_MAX, 8, 0, 8), HD_ERROR_LIMIT);
    assert_status(by_driver(8, UINT16_MAX, 0, 8), HD_ERROR_LIMIT);
}

static hd_status by_ptx(unsigned bytes)
{
    char text[256];
    snprintf(text, sizeof text,
             ".version 6.3\n.target sm_70\n.address_size 64\n.visible .entry some(.param .align 8 .b8 large[%u])\n{\n  "
             "  ret;\n}\n",
             bytes);
    hdi_image image;
    const void *code;
    size_t code_bytes;
    assert_ok(hdi_image_open(text, strlen(text), false, &image, &code, &code_bytes));
    hdi_signature signature = {.described = false};
    hd_status status = hdi_image_describe(&image, "some", &signature);
    free(signature.params);
    hdi_image_release(&image);
    return status;
}

static void ptx_tells_of_more_than_fits(void **state)
{
    (void)state;
    assert_ok(by_ptx(8));
    assert_ok(by_ptx(HDI_KERNEL_ARGUMENT_BYTES_MAX));
    assert_status(by_ptx(HDI_KERNEL_ARGUMENT_BYTES_MAX + 1), HD_ERROR_LIMIT);
    assert_status(by_ptx(32764), HD_ERROR_LIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_driver_tells_of_more_than_fits),
        cmocka_unit_test(ptx_tells_of_more_than_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
