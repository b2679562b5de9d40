/* A libnvidia-ml.so.1 without a GPU behind it: it plays the machine that a text file describes.
 *
 * NVML_STUB names the file. Its lines: "KEY VALUE" about the driver, "gpu" begins a GPU and "mig" a
 * MIG instance of the last GPU, "refuse FUNCTION CODE" lets one function fail everywhere, "hang
 * FUNCTION" lets it sleep, "crash FUNCTION" lets it die of SIGSEGV. The macro R610 leaves out the
 * functions that drivers from R610 on no longer export.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NOT_SUPPORTED = 3, NOT_FOUND = 6, UNINITIALIZED = 1, MAX_FACTS = 64, MAX_DEVICES = 64 };

typedef struct { char key[32]; char value[128]; } Fact;
typedef struct Device {
    struct Device *parent; /* NULL: a GPU; else a MIG instance of it */
    Fact facts[MAX_FACTS];
    int count;
} Device;

static Device driver, devices[MAX_DEVICES];
static int device_count, is_read;

static void read_description(void) {
    char line[256], *value;
    const char *path = getenv("NVML_STUB");
    FILE *file = path ? fopen(path, "r") : NULL;
    Device *now = &driver, *gpu = NULL;
    is_read = 1;
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (!strcmp(line, "gpu") || !strcmp(line, "mig")) {
            now = &devices[device_count++];
            if (line[0] == 'g') gpu = now; else now->parent = gpu;
            continue;
        }
        value = strchr(line, ' ');
        if (!value || now->count == MAX_FACTS) continue;
        *value++ = 0;
        snprintf(now->facts[now->count].key, 32, "%s", line);
        snprintf(now->facts[now->count++].value, 128, "%s", value);
    }
    if (file) fclose(file);
}

static const char *get(Device *device, const char *key) {
    for (int i = 0; i < device->count; i++)
        if (!strcmp(device->facts[i].key, key)) return device->facts[i].value;
    return NULL;
}

static int refusal(Device *device, const char *function) {
    size_t length = strlen(function);
    for (int i = 0; i < device->count; i++) {
        Fact *fact = &device->facts[i];
        if (strncmp(fact->value, function, length) ||
            (fact->value[length] && fact->value[length] != ' ')) continue;
        if (!strcmp(fact->key, "hang")) for (;;) sleep(60);
        if (!strcmp(fact->key, "crash")) raise(SIGSEGV);
        if (!strcmp(fact->key, "refuse")) return atoi(fact->value + length);
    }
    return 0;
}

static int begin(Device *device) {
    (void)device;
    if (!is_read) read_description();
    return 0;
}

#define BEGIN(device)                                                \
    begin(device);                                                   \
    { int code_ = refusal(&driver, __func__); if (code_) return code_; } \
    if (device) { int code_ = refusal(device, __func__); if (code_) return code_; }

static int text(Device *device, const char *key, char *out, unsigned size) {
    const char *value = get(device, key);
    if (!value) return NOT_SUPPORTED;
    snprintf(out, size, "%s", value);
    return 0;
}

static int number(Device *device, const char *key, unsigned long long *out) {
    const char *value = get(device, key);
    if (!value) return NOT_SUPPORTED;
    *out = strtoull(value, NULL, 10);
    return 0;
}

#define NONE ((Device *)NULL)

int nvmlInitWithFlags(unsigned flags) { (void)flags; BEGIN(NONE) return 0; }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { (void)code; return "an error that the stub plays"; }

int nvmlSystemGetDriverVersion(char *out, unsigned size) {
    BEGIN(NONE) return text(&driver, "driver", out, size);
}
int nvmlSystemGetNVMLVersion(char *out, unsigned size) {
    BEGIN(NONE) return text(&driver, "nvml", out, size);
}
int nvmlSystemGetCudaDriverVersion_v2(int *out) {
    unsigned long long value = 0;
    BEGIN(NONE)
    int code = number(&driver, "cuda", &value);
    *out = (int)value;
    return code;
}

static Device *nth(Device *parent, unsigned index) {
    for (int i = 0; i < device_count; i++)
        if (devices[i].parent == parent && index-- == 0) return &devices[i];
    return NULL;
}
int nvmlDeviceGetCount_v2(unsigned *out) {
    BEGIN(NONE)
    for (*out = 0; nth(NULL, *out); ++*out) {}
    return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **out) {
    BEGIN(NONE)
    *out = nth(NULL, index);
    if (!*out) return NOT_FOUND;
    return refusal(*out, __func__);
}
int nvmlDeviceGetName(Device *device, char *out, unsigned size) {
    BEGIN(device) return text(device, "name", out, size);
}
int nvmlDeviceGetUUID(Device *device, char *out, unsigned size) {
    BEGIN(device) return text(device, "uuid", out, size);
}
typedef struct {
    char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32];
} PciInfo;
int nvmlDeviceGetPciInfo_v3(Device *device, PciInfo *out) {
    BEGIN(device) return text(device, "pci", out->bus_id, sizeof out->bus_id);
}
int nvmlDeviceGetCudaComputeCapability(Device *device, int *major, int *minor) {
    BEGIN(device)
    const char *value = get(device, "cc");
    return value && sscanf(value, "%d.%d", major, minor) == 2 ? 0 : NOT_SUPPORTED;
}
int nvmlDeviceGetMemoryInfo(Device *device, unsigned long long *out) {
    BEGIN(device)
    int code = number(device, "memory", out);
    if (code || number(device, "free", out + 1)) out[1] = out[0];
    out[2] = out[0] - out[1];
    return code;
}

#define NUMBER(function, key, type)                                   \
    int function(Device *device, type *out) {                         \
        unsigned long long value = 0;                                 \
        BEGIN(device)                                                 \
        int code = number(device, key, &value);                       \
        *out = (type)value;                                           \
        return code;                                                  \
    }
#define CURRENT_AND_PENDING(function, key)                            \
    int function(Device *device, unsigned *current, unsigned *pending) { \
        unsigned long long value = 0;                                 \
        BEGIN(device)                                                 \
        int code = number(device, key, &value);                       \
        *current = *pending = (unsigned)value;                        \
        return code;                                                  \
    }
NUMBER(nvmlDeviceGetComputeMode, "mode", unsigned)
NUMBER(nvmlDeviceGetVirtualizationMode, "virtualization", unsigned)
CURRENT_AND_PENDING(nvmlDeviceGetEccMode, "ecc")
CURRENT_AND_PENDING(nvmlDeviceGetMigMode, "mig_mode")
#ifndef R610
NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, "retired", unsigned)
int nvmlDeviceGetTotalEccErrors(Device *device, int error, int counter, unsigned long long *out) {
    BEGIN(device)
    return error == 1 && counter == 0 ? number(device, "uncorrected", out) : NOT_SUPPORTED;
}
#endif
int nvmlDeviceGetRemappedRows(Device *device, unsigned *corrected, unsigned *uncorrected,
                              unsigned *pending, unsigned *failed) {
    unsigned long long value = 0;
    BEGIN(device)
    int code = number(device, "remapping", &value);
    *corrected = *uncorrected = *failed = 0;
    *pending = (unsigned)value;
    return code;
}
int nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned *out) {
    BEGIN(device)
    *out = 7;
    return 0;
}
int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned index, Device **out) {
    BEGIN(device)
    *out = nth(device, index);
    return *out ? 0 : NOT_FOUND;
}
typedef struct {
    unsigned version; unsigned char cluster[16]; int status; unsigned clique; unsigned char state;
    unsigned health;
} FabricInfoV;
int nvmlDeviceGetGpuFabricInfoV(Device *device, FabricInfoV *out) {
    unsigned long long state = 0, status = 0;
    BEGIN(device)
    int code = number(device, "fabric", &state);
    number(device, "fabric_status", &status);
    out->state = (unsigned char)state;
    out->status = (int)status;
    return code;
}
