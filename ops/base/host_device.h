// Marks functions that CUDA kernels also call. For other compilers the macro is empty.
#ifndef OPS_BASE_HOST_DEVICE_H_
#define OPS_BASE_HOST_DEVICE_H_

#ifdef __CUDACC__
#define TFS_HOST_DEVICE __host__ __device__
#define TFS_DEVICE __device__
#else
#define TFS_HOST_DEVICE
#define TFS_DEVICE
#endif

#endif  // OPS_BASE_HOST_DEVICE_H_
