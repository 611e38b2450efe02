"""The figures of the cost model that were fitted to measurements; devices have their own (`device/device_spec.py`)."""

# Work that overlaps, and cores that wait.
HIDDEN = 0.3  # share of shorter work that the longer does not hide; 0.3 fits measured layers at 512²
UNEVEN_BRICKS = 0.06  # share of a brick's time that cores wait for the last brick, though all are equal
UNEVEN_WINOGRAD = 0.1  # the same of a task of a Winograd layer
UNEVEN_TILES = 0.12  # the same of a task of a layer in tile registers, and of a brick with such layers
UNEVEN_STRASSEN = 0.02  # the same of a task of a product by Strassen's scheme
UNEVEN_LAYER = 1.04  # a layer gets smaller tasks if it would take so many times longer than on evenly busy cores
SHARED_US = 4.0  # tasks of a layer that is too short for more than one a core: what another core saves by sharing it

# Fused bricks on a GPU.
FUSED_TASK_US = 1.0  # to begin a brick and to end it: its records, its first loads, which take two ways to memory
FUSED_BLOCKS = 2  # blocks of a multiprocessor that registers leave room for; one alone hides nothing behind another
TILE_SHARE = 0.9  # of the peak, by the rounds of a tile in which nothing is waited for
NEAR_WEIGHTS = 16 << 10  # bytes of a product's weights that stay in the multiprocessor's cache from tile to tile
NEAR_US, L2_US = 0.1, 0.7  # until such weights are there, and others

# Arithmetic and traffic of any node.
ELEMENTWISE_OPERATIONS = 4  # operations on an element in the time in which elementwise kernels do one of them
MOVE_OPERATIONS = 4.0  # vector operations per element of operators that only move
SLOW_OPERATIONS = 15.0  # vector operations that exp and the like take as long as
DIVIDE_OPERATIONS = 4.0  # the same of divisions and square roots
SPILT_MOVES = 1.5  # a spilt line moves three times (fetched to be written, evicted, read), not twice
RECURRENT_SHARE, RECURRENT_ROWS = (
    0.7,
    4,
)  # of the multiply-add peak; sequences from which on weights are not what is waited for
ROW_END = 8.0  # cutting rows to so many elements costs half as much again: tile tails, gathered halos

# Direct convolutions, and Winograd's algorithm.
DIRECT_SHARE, PRODUCT_SHARE = 0.8, 0.9  # of the multiply-add peak
RAW_SHARE = 0.8  # of the multiply-add peak, by weights that are transformed beside the products
RAW_WEIGHT = 3.5  # multiply-adds that a transformed value of these takes as long as
PAIRED_RAW_WEIGHT = 10.0  # the same where channels are paired, and sums of pairs are made
TRANSFORM_FLOPS, TRANSFORM_BYTES = 10.0, 6.0  # per element of V and of M: additions at half the peak, traffic in L2
STRIDED_READS = 2.0  # times that for inputs a stride apart, which tiles hardly share
GATHERED, GATHERED_CHANNELS = 3.0, 4  # times that for single elements, of inputs of so few channels
HELD = 1.25  # of L2: what a group of transformed tiles may take, of all residues, to be near
PACED_READ = 0.75  # of the time in which kernels read else: weights that are asked for at an even pace
PACED_SHOWN = 0.2  # as HIDDEN, for these
PACED_KEPT, PACED_KEPT_READ = 1 / 16, 0.3  # share of L3 whose constants stay there whatever others do; the same of them
SHARED_RAW = 1.5  # of the time that layers are modelled with whose weights are transformed beside the products, where
# others are asked for at an even pace
PACED_RAW = 1.25  # the same by vectors of 16 lanes, of all but these transforms
PACED_RAW_WEIGHT = 9.5  # as RAW_WEIGHT, there
PACED_NEAR = 0.5  # times as fast as L2 is read there: transformed tiles that it holds
PACED_SPILL = 3.5  # times as fast as kernels read below L2 there: transformed tiles that L2 does not hold
WINOGRAD_PAIRS = 1.04  # times as long as their multiply-adds take else: products of Winograd's with paired channels
HELD_BESIDE = 1.5  # of transformed weights and a group of tiles: L2 that they take to stay there, where these are paced
NARROW_MARGIN, NARROW_STRIDED_MARGIN = 0.95, 0.7  # the following by vectors of eight lanes
WINOGRAD_MARGIN, STRIDED_MARGIN = 0.85, 0.72  # of the direct time that Winograd's algorithm may take to be chosen

# Products by Strassen's scheme.
STRASSEN_SHARE = 0.95  # of the multiply-add peak, by any way to multiply
STRASSEN_MARGIN = 0.95  # of the direct time that the scheme may take to be chosen
MEASURED_MARGIN = 0.98  # the same on the processors that these figures were measured on
MADE_PANEL = 3.5  # multiply-adds that a vector of sums of weights takes as long as, where a kernel makes them
PAIRED_TIME = 0.74  # of the time of the same products directly, where a processor adds beside multiply-adds
PAIRED_ROWS = 14  # rows of which the products take as long as of fewer
PAIRED_ROW = 1800.0  # bytes through L2 in whose time a row is measured, whatever its elements
STRASSEN_LEAST = 8.0  # microseconds of one core that the scheme must save: less is not found again in whole runs
SUM = {0: 20.0, 1: 12.0, 2: 22.0}  # bytes through L2 for the sums of one element; twice so many where they fill L2
PACED_SUM = 2.5  # times as long where weights are paced: two multiply-adds a cycle, and lines are written no faster
NARROW_ENDS = {1: 15.0, 2: 130.0}  # multiply-adds that the end of a tile of eight lanes takes as long as, by levels
NARROW_SUMS = 3.3  # times as long as sums take there, beside less arithmetic
NARROW_HELD = 2.0  # of L2: first factors that are read soon enough there, as a core multiplies so slowly
NARROW_ROWS = 64  # from which on the scheme is faster there than direct products
NARROW_PANELS = 1.06  # times as long as multiply-adds take there where the panels of seven products exceed L1
OUTPUT = {0: 3.0, 1: 14.0, 2: 32.0}  # the same per element of the output and chunk of K: what is kept and added
PREFETCHED_HIDDEN = 0.12  # as HIDDEN, for weights that are fetched far ahead
SPILT_FACTORS = 0.3  # as HIDDEN, for first factors that L2 does not hold
KEPT = 0.25  # share of the shared cache in which a layer finds its input, and leaves its output
MOST_MEMORY = 0.25  # share of the memory that all constants may grow to
