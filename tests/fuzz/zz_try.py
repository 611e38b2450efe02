import sys, time, numpy as np, onnx
from onnx import helper
from tests.support.graphs.onnx_models import graph, model, node, tensor
from tests.fuzz.worker import Worker
i=lambda *v: np.array(v,np.int64)
X=[tensor("x",[1,4,8,8])]
cases={
 "cos": model([node("ConstantOfShape","s","y")],[],s=i(1<<31)),
 "cos16": model([node("ConstantOfShape","s","c"),node("ReduceSum","c","y")],[],s=i(1<<31)),
 "pad": model([node("Pad","x p","y")],[tensor("x",[2])],p=i(1<<31,0)),
 "pad2": model([node("Pad","x p","z"),node("ReduceSum","z","y")],[tensor("x",[2])],p=i(1<<31,0)),
 "poolpads": model([node("MaxPool","x","y",kernel_shape=[2,2],pads=[1<<31]*4)],X),
 "convpads": model([node("Conv","x w","y",pads=[1<<31]*4)],X,w=np.ones((4,4,3,3),np.float32)),
 "convt": model([node("ConvTranspose","x w","y",output_shape=[100000,10000])],X,w=np.ones((4,1,3,3),np.float32)),
 "lrn": model([node("LRN","x","y",size=10**7)],X),
 "lrn2": model([node("LRN","x","y",size=2**62)],X),
 "group0": model([node("Conv","x w","y",group=0)],X,w=np.ones((4,4,3,3),np.float32)),
 "groupt0": model([node("ConvTranspose","x w","y",group=0)],X,w=np.ones((4,4,3,3),np.float32)),
 "stft0": model([node("STFT","x s _ l","y")],[tensor("x",[1,16,1])],s=i(1)[0],l=i(0)[0]),
 "stfts0": model([node("STFT","x s _ l","y")],[tensor("x",[1,16,1])],s=i(0)[0],l=i(4)[0]),
 "dft0": model([node("DFT","x l","y")],[tensor("x",[1,16,1])],l=i(0)[0]),
 "rank33": model([node("Relu","x","y")],[tensor("x",[1]*33)]),
 "rank40": model([node("Unsqueeze","x a","y")],[tensor("x",[2])],a=i(*range(39))),
 "concat0": model([node("Concat","x x","y",axis=0)],[tensor("x",[])]),
 "where8": model([node("Where","c x x","y")],[tensor("c",[2],np.int8),tensor("x",[2])]),
 "wherei": model([node("Where","c x x","y")],[tensor("x",[2])],c=i(1,0)),
 "and8": model([node("And","c c","y")],[tensor("c",[2],np.int8)]),
 "not8": model([node("Not","c","y")],[tensor("c",[2],np.int8)]),
 "gathernd": model([node("NonZero","x","n"),node("GatherND","x n","y",batch_dims=-1000)],[tensor("x",[2,2])]),
 "tile": model([node("Tile","x r","y")],[tensor("x",[2])],r=i(1<<31)),
 "tileneg": model([node("Tile","x r","y")],[tensor("x",[2])],r=i(-1)),
 "expand": model([node("Expand","x r","y")],[tensor("x",[1])],r=i(1<<33)),
 "expand2": model([node("Expand","x r","z"),node("ReduceMax","z","y")],[tensor("x",[1])],r=i(1<<33)),
 "range": model([node("Range","a b c","y")],[],a=i(0)[0],b=i(1<<40)[0],c=i(1)[0]),
 "eye": model([node("EyeLike","x","y")],[tensor("x",[1<<20,1])]),
 "resize": model([node("Resize","x _ _ s","y")],X,s=i(1,4,1<<30,1)),
 "resize0": model([node("Resize","x _ s","y")],X,s=np.array([1,1,0,1],np.float32)),
 "onehot": model([node("OneHot","x d v","y")],[tensor("x",[4],np.int64)],d=i(1<<40),v=np.array([0,1],np.float32)),
 "random": model([node("RandomNormal","","y",shape=[1<<40])],[]),
 "host_cos": model([node("NonZero","x","n"),node("Shape","n","s"),node("Mul","s k","t"),node("ConstantOfShape","t","y")],[tensor("x",[2,2])],k=i(1<<20,1<<20)),
 "blackman": model([node("BlackmanWindow","n","y")],[],n=i(1<<40)[0]),
 "upsample": model([node("CenterCropPad","x s","y")],[tensor("x",[2])],s=i(1<<33)),
 "matmul": model([node("MatMul","x w","y")],[tensor("x",[1<<20,1])],w=np.ones((1,1<<20),np.float32)),
 "matmul2": model([node("MatMul","x w","z"),node("ReduceMax","z","y")],[tensor("x",[1<<20,1])],w=np.ones((1,1<<20),np.float32)),
}
if __name__=="__main__":
    dev=sys.argv[1]; only=sys.argv[2:]
    with Worker(12) as w:
        for k,m in cases.items():
            if only and k not in only: continue
            t=time.time(); r=w.run((m.SerializeToString(),dev)); dt=time.time()-t
            print(f"{k:9s} {dt:5.1f} {r[0]} {r[1][-1200:] if r[0]=='broke' and only else r[1].strip().splitlines()[-1][:230] if r[1] else ''}",flush=True)
