// Loads the CUDA library of this package, which most machines do not have.
#ifndef OPS_STAGING_LIBRARY_H_
#define OPS_STAGING_LIBRARY_H_

#include <string>

#include "ops/base/status.h"
#include "ops/cuda/functions.h"

namespace tf_strategies {

// Loads the library for the rest of the process. Later calls do nothing. Returns FailedPrecondition if it does not load, or
// is of another version. It loads without a GPU and without a driver.
Status LoadCuda(const std::string& path);

// The functions of the library, or null if none was loaded.
const TfsCudaFunctions* Cuda();

// Returns the error of a function as Internal, after "<what>: ".
Status StatusOfCuda(TfsCudaError error, const char* what);

}  // namespace tf_strategies

#endif  // OPS_STAGING_LIBRARY_H_
