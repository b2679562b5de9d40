/* A libcudnn.so.9 that convolves fp32 on the host, for tests without a GPU.
 *
 * Only the legacy convolutions work; types other than fp32 and the graph API are NOT_SUPPORTED.
 * FAKE_CUDNN makes it faulty: perturb (one element of a result), silent (success, nothing written),
 * nan, hang, abort, segv, refuse (no handle), zero, unstable (another error each run, within rounding).
 */
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    int type, rank, dims[8], strides[8], groups, pad[3], stride[3], dilation[3];
} D;
typedef struct {
    int algo, status;
    float time;
    size_t memory;
    int determinism, math, reserved[3];
} Perf;

static int is(const char *fault) {
    const char *chosen = getenv("FAKE_CUDNN");
    return chosen && strcmp(chosen, fault) == 0;
}

size_t cudnnGetVersion(void) { return 91900; }
size_t cudnnGetCudartVersion(void) { return 13000; }
size_t cudnnGetMaxDeviceVersion(void) { return 1200; }
int cudnnGraphVersionCheck(void) { return 0; }
void cudnnGetLastErrorString(char *s, size_t n) { strncpy(s, "as the test asked", n); }
int cudnnCreate(void **h) {
    if (is("refuse")) return 1001;
    *h = malloc(8);
    return 0;
}
int cudnnDestroy(void *h) { return 0; }
int cudnnSetStream(void *h, void *s) { return 0; }

#define KIND(K)                                                                        \
    int cudnnCreate##K##Descriptor(void **d) { return (*d = calloc(1, sizeof(D))) == 0; } \
    int cudnnDestroy##K##Descriptor(void *d) { free(d); return 0; }
KIND(Tensor) KIND(Filter) KIND(Convolution)

int cudnnSetTensorNdDescriptor(D *d, int type, int rank, const int *dims, const int *strides) {
    d->type = type;
    d->rank = rank;
    memcpy(d->dims, dims, rank * sizeof(int));
    memcpy(d->strides, strides, rank * sizeof(int));
    return 0;
}
int cudnnSetFilterNdDescriptor(D *d, int type, int layout, int rank, const int *dims) {
    int strides[8], step = layout ? dims[1] : 1;
    for (int i = rank - 1; i >= 2; i--) strides[i] = step, step *= dims[i];
    strides[1] = layout ? 1 : step;
    strides[0] = layout ? step : step * dims[1];
    return cudnnSetTensorNdDescriptor(d, type, rank, dims, strides);
}
int cudnnSetConvolutionNdDescriptor(D *d, int n, const int *pad, const int *stride,
                                    const int *dilation, int mode, int type) {
    memcpy(d->pad, pad, n * sizeof(int));
    memcpy(d->stride, stride, n * sizeof(int));
    memcpy(d->dilation, dilation, n * sizeof(int));
    return 0;
}
int cudnnSetConvolutionGroupCount(D *d, int n) { d->groups = n; return 0; }
int cudnnSetConvolutionMathType(D *d, int m) { return 0; }

static int algorithms(D *a, int *n, Perf *p) {
    if (a->type != 0) return 3000;
    memset(p, 0, sizeof *p);
    p->determinism = 1;
    p->math = 3;
    *n = 1;
    return 0;
}

/* Walks all products of a convolution; direction 0 makes y, 1 dx, 2 dw. */
static void walk(int way, D *xd, double *x, D *wd, double *w, D *yd, double *y, D *c) {
    int s3 = xd->rank == 5, cg = wd->dims[1], kg = wd->dims[0] / c->groups;
    int xn[3] = {1, 1, 1}, wn[3] = {1, 1, 1}, yn[3] = {1, 1, 1};
    int xs[3] = {0}, ws[3] = {0}, ys[3] = {0}, pad[3] = {0}, st[3] = {1, 1, 1}, di[3] = {1, 1, 1};
    for (int i = 0, o = s3 ? 0 : 1; i < xd->rank - 2; i++, o++) {
        xn[o] = xd->dims[i + 2], wn[o] = wd->dims[i + 2], yn[o] = yd->dims[i + 2];
        xs[o] = xd->strides[i + 2], ws[o] = wd->strides[i + 2], ys[o] = yd->strides[i + 2];
        pad[o] = c->pad[i], st[o] = c->stride[i], di[o] = c->dilation[i];
    }
    for (int n = 0; n < xd->dims[0]; n++)
    for (int k = 0; k < wd->dims[0]; k++)
    for (int ch = 0; ch < cg; ch++)
    for (int a = 0; a < yn[0] * yn[1] * yn[2]; a++)
    for (int t = 0; t < wn[0] * wn[1] * wn[2]; t++) {
        int q[3] = {a / (yn[1] * yn[2]), a / yn[2] % yn[1], a % yn[2]};
        int r[3] = {t / (wn[1] * wn[2]), t / wn[2] % wn[1], t % wn[2]};
        long xi = n * (long)xd->strides[0] + (ch + k / kg * cg) * (long)xd->strides[1];
        long wi = k * (long)wd->strides[0] + ch * (long)wd->strides[1];
        long yi = n * (long)yd->strides[0] + k * (long)yd->strides[1];
        int inside = 1;
        for (int i = 0; i < 3; i++) {
            int at = q[i] * st[i] - pad[i] + r[i] * di[i];
            inside &= at >= 0 && at < xn[i];
            xi += at * (long)xs[i], wi += r[i] * (long)ws[i], yi += q[i] * (long)ys[i];
        }
        if (!inside) continue;
        if (way == 0) y[yi] += x[xi] * w[wi];
        if (way == 1) x[xi] += y[yi] * w[wi];
        if (way == 2) w[wi] += x[xi] * y[yi];
    }
}

static long count(D *d) {
    long n = 1;
    for (int i = 0; i < d->rank; i++) n *= d->dims[i];
    return n;
}
static double *wide(D *d, const float *f) {
    long n = count(d);
    double *made = calloc(n, sizeof(double));
    for (long i = 0; f && i < n; i++) made[i] = f[i];
    return made;
}

static int run(int way, D *xd, float *x, D *wd, float *w, D *yd, float *y, D *c) {
    static int calls;
    if (is("hang")) for (;;) sleep(1);
    if (is("abort")) abort();
    if (is("segv")) raise(SIGSEGV);
    if (is("silent")) return 0;
    double *a = wide(xd, way == 1 ? 0 : x), *b = wide(wd, way == 2 ? 0 : w);
    double *o = wide(yd, way == 0 ? 0 : y);
    walk(way, xd, a, wd, b, yd, o, c);
    D *rd = way == 0 ? yd : way == 1 ? xd : wd;
    float *result = way == 0 ? y : way == 1 ? x : w;
    double *source = way == 0 ? o : way == 1 ? a : b;
    long n = count(rd);
    for (long i = 0; i < n; i++) result[i] = (float)source[i];
    if (is("perturb")) result[n / 2] += 0.001f * fabsf(result[n / 2]) + 0.01f;
    if (is("nan")) result[n - 1] = NAN;
    if (is("zero")) memset(result, 0, n * sizeof(float));
    if (is("unstable") && calls++ % 2) result[0] = nextafterf(result[0], 1e30f);
    free(a), free(b), free(o);
    return 0;
}

#define WAY(NAME, WAYNO, A, B, C, ORDER)                                                       \
    int cudnnGetConvolution##NAME##Algorithm_v7(void *h, D *a, D *b, D *c, D *r, int want,     \
                                                int *n, Perf *p) { return algorithms(a, n, p); } \
    int cudnnGetConvolution##NAME##WorkspaceSize(void *h, D *a, D *b, D *c, D *r, int algo,    \
                                                 size_t *n) { *n = 0; return 0; }              \
    int cudnnConvolution##NAME(void *h, void *al, D *a, float *pa, D *b, float *pb, D *c,      \
                               int algo, void *ws, size_t n, void *be, D *r, float *pr) {      \
        return ORDER; }
WAY(Forward, 0, x, w, y, run(0, a, pa, b, pb, r, pr, c))
WAY(BackwardData, 1, w, y, x, run(1, r, pr, a, pa, b, pb, c))
WAY(BackwardFilter, 2, x, y, w, run(2, a, pa, r, pr, b, pb, c))

int cudnnCausalConv1dForward(void *s, const float *x, const float *w, const float *b, float *y,
                             int n, int c, int l, int k, int type, int activation) {
    if (type != 0) return 3000;
    for (int at = 0; at < n * c; at++)
        for (int t = 0; t < l; t++) {
            double sum = b[at % c];
            for (int j = 0; j < k && j <= t; j++)
                sum += (double)x[at * l + t - j] * w[at % c * k + k - 1 - j];
            y[at * l + t] = is("causal") && t == l - 1 ? -(float)sum : (float)sum;
        }
    return 0;
}

int cudnnBackendCreateDescriptor(int kind, void **d) { return 3000; }
