/* A libcuda.so.1 whose device memory is host memory, for tests without a GPU.
 *
 * FAKE_NO_DEVICE: it sees no GPU. FAKE_DRIVER: the CUDA it supports, as 12040. FAKE_FREE: bytes of
 * free memory that it tells.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define OK 0
typedef int R;

R cuInit(unsigned flags) { return getenv("FAKE_NO_DEVICE") ? 100 : OK; }
static long said(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text ? atol(text) : otherwise;
}
R cuDriverGetVersion(int *v) { *v = (int)said("FAKE_DRIVER", 13000); return OK; }
R cuDeviceGetCount(int *n) { *n = 1; return OK; }
R cuDeviceGet(int *d, int i) { *d = i; return OK; }
R cuDeviceGetName(char *s, int n, int d) { strncpy(s, "Fake GPU", n); return OK; }
R cuDeviceGetUuid(unsigned char *u, int d) { memset(u, 7, 16); return OK; }
R cuDeviceGetAttribute(int *v, int which, int d) {
    *v = which == 75 ? 9 : which == 76 ? 0 : 132;
    return OK;
}
R cuDevicePrimaryCtxRetain(void **c, int d) { *c = (void *)1; return OK; }
R cuCtxSetCurrent(void *c) { return OK; }
R cuCtxSynchronize(void) { return OK; }
R cuMemGetInfo_v2(size_t *f, size_t *t) {
    *t = (size_t)8 << 30;
    *f = said("FAKE_FREE", *t);
    return OK;
}
R cuMemAlloc_v2(uint64_t *p, size_t n) {
    if (n > (size_t)1 << 31) return 2;
    *p = (uint64_t)malloc(n);
    return *p ? OK : 2;
}
R cuMemFree_v2(uint64_t p) { free((void *)p); return OK; }
R cuMemcpyHtoD_v2(uint64_t d, const void *s, size_t n) { memcpy((void *)d, s, n); return OK; }
R cuMemcpyDtoH_v2(void *d, uint64_t s, size_t n) { memcpy(d, (void *)s, n); return OK; }
R cuMemcpyDtoDAsync_v2(uint64_t d, uint64_t s, size_t n, void *st) {
    memcpy((void *)d, (void *)s, n);
    return OK;
}
R cuMemsetD8_v2(uint64_t d, unsigned char v, size_t n) { memset((void *)d, v, n); return OK; }
R cuEventCreate(void **e, unsigned f) { *e = (void *)1; return OK; }
R cuEventRecord(void *e, void *s) { return OK; }
R cuEventSynchronize(void *e) { return OK; }
R cuEventElapsedTime(float *ms, void *a, void *b) { *ms = 1; return OK; }
R cuGetErrorName(int e, const char **s) {
    *s = e == 100 ? "CUDA_ERROR_NO_DEVICE" : e == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_UNKNOWN";
    return OK;
}
R cuGetErrorString(int e, const char **s) { *s = "made up"; return OK; }
