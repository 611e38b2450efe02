/* CUDA's runtime and driver as far as cuDNN asks for them while it builds plans for a device that is only described.

   One library stands for both libcudart and libcuda. Its one device answers with the attributes that described_attribute
   was told. Modules are taken as they are and never run: what loads a cubin gets a handle, what would launch or allocate
   gets cudaErrorNoDevice. */
#include <stddef.h>
#include <string.h>

#define NO_DEVICE 100
#define MOST_ATTRIBUTES 256
#define REFUSED(name) int name(void) { return NO_DEVICE; }

static int attributes[MOST_ATTRIBUTES];
static int version = 13000;
static int module; /* whose address all handles are */

void described_attribute(int attribute, int value) { attributes[attribute] = value; }
void described_version(int value) { version = value; }

/* the runtime */

static int known(int *value, int attribute) {
    *value = attribute >= 0 && attribute < MOST_ATTRIBUTES ? attributes[attribute] : 0;
    return 0;
}

int cudaGetDevice(int *device) { *device = 0; return 0; }
int cudaGetDeviceCount(int *count) { *count = 1; return 0; }
int cudaDeviceGetAttribute(int *value, int attribute, int device) { (void)device; return known(value, attribute); }
int cudaRuntimeGetVersion(int *value) { *value = version; return 0; }
int cudaDriverGetVersion(int *value) { *value = version; return 0; }
int cudaGetLastError(void) { return 0; }
const char *cudaGetErrorName(int error) { return error ? "cudaErrorNoDevice" : "cudaSuccess"; }
const char *cudaGetErrorString(int error) { return error ? "the device is only described" : "no error"; }
int cudaStreamGetCaptureInfo(void *stream, int *status) { (void)stream; *status = 0; return 0; }
int cudaPointerGetAttributes(void *found, const void *pointer) { (void)found; (void)pointer; return 1; }

/* the driver */

static int opened(void **handle) { *handle = &module; return 0; }

int cuDriverGetVersion(int *value) { *value = version; return 0; }
int cuDeviceGet(int *device, int number) { *device = number; return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { (void)device; return known(value, attribute); }
int cuGetErrorName(int error, const char **text) { *text = cudaGetErrorName(error); return 0; }
int cuGetErrorString(int error, const char **text) { *text = cudaGetErrorString(error); return 0; }
int cuLibraryLoadData(void **library) { return opened(library); }
int cuLibraryGetKernel(void **kernel) { return opened(kernel); }
int cuKernelGetFunction(void **function) { return opened(function); }
int cuLibraryUnload(void *library) { (void)library; return 0; }
int cuModuleLoadData(void **loaded) { return opened(loaded); }
int cuModuleGetFunction(void **function) { return opened(function); }
int cuModuleUnload(void *loaded) { (void)loaded; return 0; }
int cuKernelSetAttribute(int attribute, int value) { (void)attribute; (void)value; return 0; }
int cuKernelGetAttribute(int *value) { *value = 0; return 0; }

REFUSED(cuInit)
REFUSED(cuGetProcAddress)
REFUSED(cuGetProcAddress_v2)
REFUSED(cuCtxGetCurrent)
REFUSED(cuCtxGetLimit)
REFUSED(cuCtxPopCurrent)
REFUSED(cuCtxPushCurrent)
REFUSED(cuStreamGetCtx)
REFUSED(cuLinkCreate)
REFUSED(cuLinkAddData)
REFUSED(cuLinkComplete)
REFUSED(cuLinkDestroy)
REFUSED(cuLibraryLoadFromFile)
REFUSED(cuLaunchKernel)
REFUSED(cuLaunchKernelEx)
REFUSED(cuLaunchCooperativeKernel)
REFUSED(cuOccupancyMaxPotentialClusterSize)
REFUSED(cuTensorMapEncodeIm2col)
REFUSED(cuTensorMapEncodeTiled)
