"""The figures of the cost model that were fitted to measurements, but those of products in tile registers, which are in
`tile_products.py`; devices have their own (`device/device_spec.py`).

Weights are "paced" where vectors of 16 lanes ask for them at an even pace (`DeviceSpec.paces_weights`). Vectors of
eight lanes are "narrow".
"""

# Work that overlaps, and cores that wait.
UNHIDDEN_SHARE = 0.3  # of shorter work, which the longer does not hide; 0.3 fits measured layers at 512²
UNEVEN_BRICKS = 0.06  # share of a brick's time that cores wait for the last brick, though all are equal
UNEVEN_WINOGRAD = 0.1  # share of a task's time that cores wait for the last task of a Winograd layer
UNEVEN_TILES = 0.12  # as UNEVEN_WINOGRAD, of a layer in tile registers, and of a brick with such layers
UNEVEN_STRASSEN = 0.02  # as UNEVEN_WINOGRAD, of a product by Strassen's scheme
UNEVEN_LAYER = 1.04  # a layer gets smaller tasks if it would take so many times longer than on evenly busy cores
SHARED_US = 4.0  # tasks of a layer that is too short for more than one a core: what another core saves by sharing it

# Fused bricks on a GPU.
FUSED_TASK_US = 1.0  # to begin a brick and to end it: its records, its first loads, which take two ways to memory
FUSED_BLOCKS = 2  # blocks of a multiprocessor that registers leave room for; one alone hides nothing behind another
TILE_SHARE = 0.9  # of the peak, by the rounds of a tile in which nothing is waited for
NEAR_WEIGHTS = 16 << 10  # bytes of a product's weights that stay in the multiprocessor's cache from tile to tile
NEAR_US, L2_US = 0.1, 0.7  # microseconds until NEAR_WEIGHTS are there, and until weights from L2 are

# Arithmetic and traffic of any node.
ELEMENTWISE_OPERATIONS = 4  # operations on an element in the time in which elementwise kernels do one of them
MOVE_OPERATIONS = 4.0  # vector operations per element of operators that only move
SLOW_OPERATIONS = 15.0  # vector operations that exp and the like take as long as
DIVIDE_OPERATIONS = 4.0  # vector operations that divisions and square roots take as long as
SPILT_MOVES = 1.5  # a spilt line moves three times (fetched to be written, evicted, read), not twice
RECURRENT_SHARE = 0.7  # of the multiply-add peak, that recurrent layers reach
RECURRENT_ROWS = 4  # sequences from which on weights are not what recurrent layers wait for
ROW_END = 8.0  # cutting rows to so many elements costs half as much again: tile tails, gathered halos

# Direct convolutions, and Winograd's algorithm.
DIRECT_SHARE = 0.8  # of the multiply-add peak, that direct convolutions reach
PRODUCT_SHARE = 0.9  # of the multiply-add peak, that products of transformed tiles reach
RAW_WEIGHT = 3.5  # multiply-adds that a transformed value of a weight takes as long as, where it is made beside them
PACED_RAW_WEIGHT = 14.0  # as RAW_WEIGHT, where weights are paced
PAIRED_RAW_WEIGHT = 10.0  # as RAW_WEIGHT, where channels are paired, and sums of pairs are made
TRANSFORM_FLOPS, TRANSFORM_BYTES = 10.0, 6.0  # per element of V and of M: additions at half the peak, traffic in L2
STRIDED_READS = 2.0  # times as long as reading adjacent inputs takes: inputs a stride apart, which tiles hardly share
GATHERED, GATHERED_CHANNELS = 3.0, 4  # times as long as a vector: single elements, of inputs of so few channels
NEAR_TILES_OVER_L2 = 1.25  # what a group of transformed tiles may take, of all residues, to be near
PACED_READ = 0.75  # times as long as kernels read else: paced weights, and the inputs of their tiles
PACED_UNHIDDEN_SHARE = 0.2  # as UNHIDDEN_SHARE, of paced weights beside products
PACED_KEPT = 1 / 16  # share of L3 whose constants stay there whatever others do
PACED_KEPT_READ = 0.3  # as PACED_READ, of constants that take no more than PACED_KEPT
PACED_NEAR = 0.5  # times as fast as L2 is read, where weights are paced: transformed tiles that it holds
PACED_SPILL = 3.5  # times as fast as kernels read below L2, where weights are paced: tiles that L2 does not hold
WINOGRAD_PAIRS = 1.04  # times as long as their multiply-adds take else: products of Winograd's with paired channels
HELD_BESIDE = 1.5  # of transformed weights and a group of tiles: L2 that they take to stay there, where they are paced
WINOGRAD_MARGIN = 0.85  # of the direct time that Winograd's algorithm may take to be chosen
STRIDED_MARGIN = 0.72  # as WINOGRAD_MARGIN, of convolutions with strides
NARROW_MARGIN, NARROW_STRIDED_MARGIN = 0.95, 0.7  # as WINOGRAD_MARGIN and STRIDED_MARGIN, by narrow vectors

# Products by Strassen's scheme.
STRASSEN_SHARE = 0.95  # of the multiply-add peak, by any way to multiply
STRASSEN_MARGIN = 0.95  # of the direct time that the scheme may take to be chosen
MEASURED_MARGIN = 0.98  # as STRASSEN_MARGIN, on kinds of processors that were measured: paced, narrow, double-pumped
MADE_PANEL = 6.5  # multiply-adds that a vector of sums of weights takes as long as, where a kernel makes them
PAIRED_TIME = 0.74  # times as long as direct products: with elements of K paired, where a core adds beside
PAIRED_ROWS = 14  # rows whose paired products take as long as those of fewer
PAIRED_ROW = 1800.0  # bytes through L2 that a row of paired products takes as long as, beside its elements
STRASSEN_LEAST = 8.0  # microseconds of one core that the scheme must save: less is not found again in whole runs
# By levels: bytes through L2 for the sums of one element; twice so many if they fill it.
SUM = {0: 20.0, 1: 12.0, 2: 22.0}
PACED_SUM = 2.5  # times as long as SUM, where weights are paced: two multiply-adds a cycle, and lines written no faster
# By levels: bytes through L2 per element of the output and chunk of K, which is kept and added.
OUTPUT = {0: 3.0, 1: 14.0, 2: 32.0}
NARROW_ENDS = {1: 15.0, 2: 130.0}  # by levels: multiply-adds that the end of a tile of narrow vectors takes as long as
NARROW_SUMS = 3.3  # times as long as SUM, by narrow vectors, beside less arithmetic
NARROW_HELD = 2.0  # of L2: first factors that are read soon enough by narrow vectors, as a core multiplies so slowly
NARROW_ROWS = 64  # rows from which on the scheme is faster than direct products, by narrow vectors
NARROW_PANELS = 1.06  # times as long: multiply-adds of narrow vectors, where the panels of seven products exceed L1
PREFETCHED_UNHIDDEN_SHARE = 0.12  # as UNHIDDEN_SHARE, of weights that are fetched far ahead
SPILT_FACTORS = 0.3  # share of the time to read first factors that L2 does not hold, that products do not hide
LAYER_CACHE_SHARE = 0.25  # of the shared cache, in which a layer finds its input, and leaves its output
MOST_MEMORY = 0.25  # share of the machine's memory that all constants may grow to
