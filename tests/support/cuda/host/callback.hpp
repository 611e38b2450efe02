// Kernels that ask Python to compute their box.
#pragma once

using BrickCallback = void (*)(int, const int*, const int*, char* const*);
extern "C" {
BrickCallback brick_callback = nullptr;
int brick_numbers[512];
}
