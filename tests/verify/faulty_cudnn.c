/* A libcudnn.so.9 with faults made on purpose, for tests.
 *
 * Linked against the real sublibraries, it hands on all calls but cudnnConvolutionForward and
 * cudnnBackendExecute. FAULTY_CUDNN says what these do:
 *   perturb  do the work, then flip the top mantissa bit of one element of the result
 *   silent   return success and write nothing
 *   hang     never return
 *   abort    end the process
 * A graph's output is not known here, so perturb leaves cudnnBackendExecute alone.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int (*convolution_t)(void *, const void *, void *, const void *, void *, const void *,
                             void *, int, void *, size_t, const void *, void *, void *);
typedef int (*execute_t)(void *, void *, void *);
typedef int (*size_in_bytes_t)(void *, size_t *);
typedef int (*get_tensor_t)(void *, int, int *, int *, int *, int *);
typedef int (*to_host_t)(void *, uint64_t, size_t);
typedef int (*to_device_t)(uint64_t, const void *, size_t);

static void *real(const char *library, const char *name) {
    void *handle = dlopen(library, RTLD_NOW);
    return handle ? dlsym(handle, name) : NULL;
}

static int is(const char *fault) {
    const char *chosen = getenv("FAULTY_CUDNN");
    return chosen != NULL && strcmp(chosen, fault) == 0;
}

static int stop_here(void) {
    if (is("hang"))
        for (;;) sleep(1);
    if (is("abort")) abort();
    return is("silent");
}

static void perturb(void *descriptor, uint64_t data) {
    size_t bytes = 0;
    int type = 0, rank = 0, dims[8], strides[8];
    ((size_in_bytes_t)real("libcudnn_ops.so.9", "cudnnGetTensorSizeInBytes"))(descriptor, &bytes);
    ((get_tensor_t)real("libcudnn_ops.so.9", "cudnnGetTensorNdDescriptor"))(
        descriptor, 8, &type, &rank, dims, strides);
    size_t width = type == 0 ? 4 : 2;
    uint32_t top = type == 0 ? 1u << 22 : type == 9 ? 1u << 6 : 1u << 9;
    uint64_t at = data + bytes / width / 2 * width;
    uint32_t value = 0;
    ((to_host_t)real("libcuda.so.1", "cuMemcpyDtoH_v2"))(&value, at, width);
    value ^= top;
    ((to_device_t)real("libcuda.so.1", "cuMemcpyHtoD_v2"))(at, &value, width);
}

int cudnnConvolutionForward(void *handle, const void *alpha, void *x_desc, const void *x,
                            void *w_desc, const void *w, void *conv, int algorithm, void *space,
                            size_t size, const void *beta, void *y_desc, void *y) {
    if (stop_here()) return 0;
    convolution_t go = (convolution_t)real("libcudnn_cnn.so.9", "cudnnConvolutionForward");
    int status = go(handle, alpha, x_desc, x, w_desc, w, conv, algorithm, space, size, beta, y_desc, y);
    if (status == 0 && is("perturb")) perturb(y_desc, (uint64_t)y);
    return status;
}

int cudnnBackendExecute(void *handle, void *plan, void *pack) {
    if (stop_here()) return 0;
    return ((execute_t)real("libcudnn_graph.so.9", "cudnnBackendExecute"))(handle, plan, pack);
}
