// Threads of a block for splitting.cu, as of a GPU or as plain C++; what block.cuh says for the other kernels.
//
// -DNT=256: threads of a block; -DMIN_BLOCKS=3: blocks that a multiprocessor is to hold. -DEMULATE: plain C++ for tests without
// a GPU, in which a thread is a warp of one lane: one thread, or -DNT=4 of them that each call the kernel after `enter`.
#pragma once

#ifdef EMULATE
#include <barrier>
#include <cmath>
#ifndef W
#define W 1
#endif
static thread_local int thread_number;
static std::barrier<> threads_meet(NT);
#define DEVICE static inline
#define MEMBER
#define KERNEL extern "C" void
#define SYNC() threads_meet.arrive_and_wait()
#define TID thread_number
#define LANE 0
#define WARP thread_number
#define BLOCK 0
#define BLOCKS 1
#define UNROLL(count)
using std::fabs; using std::fmax; using std::fmin; using std::sqrt;
template <class T> DEVICE T shuffle_xor(T x, int) { return x; }
extern "C" void enter(int number) { thread_number = number; }
#else
#define W 32
#ifndef MIN_BLOCKS
#define MIN_BLOCKS 1
#endif
#define DEVICE __device__ __forceinline__
#define MEMBER __device__ __forceinline__
#define KERNEL extern "C" __global__ void __launch_bounds__(NT, MIN_BLOCKS)
#define SYNC() __syncthreads()
#define TID ((int)threadIdx.x)
#define LANE (TID & 31)
#define WARP (TID >> 5)
#define BLOCK ((int)blockIdx.x)
#define BLOCKS ((int)gridDim.x)
#define PRAGMA(text) _Pragma(#text)
#define UNROLL(count) PRAGMA(unroll count)
template <class T> DEVICE T shuffle_xor(T x, int lanes) { return __shfl_xor_sync(0xffffffffu, x, lanes); }
#endif

#define NW (NT / W)
