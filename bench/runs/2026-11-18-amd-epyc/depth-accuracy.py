import numpy as np
B={2:[[1,0,-1,0],[0,1,1,0],[0,-1,1,0],[0,-1,0,1]],
4:[[4,0,-5,0,1,0],[0,-4,-4,1,1,0],[0,4,-4,-1,1,0],[0,-2,-1,2,1,0],[0,2,-1,-2,1,0],[0,4,0,-5,0,1]],
6:[[1,0,-5.25,0,5.25,0,-1,0],[0,1,1,-4.25,-4.25,1,1,0],[0,-1,1,4.25,-4.25,-1,1,0],[0,.5,.25,-2.5,-1.25,2,1,0],[0,-.5,.25,2.5,-1.25,-2,1,0],[0,2,4,-2.5,-5,.5,1,0],[0,-2,4,2.5,-5,-.5,1,0],[0,-1,0,5.25,0,-5.25,0,1]]}
G={2:[[1,0,0],[.5,.5,.5],[.5,-.5,.5],[0,0,1]],
4:[[.25,0,0],[-1/6]*3,[-1/6,1/6,-1/6],[1/24,1/12,1/6],[1/24,-1/12,1/6],[0,0,1]],
6:[[1,0,0],[-2/9]*3,[-2/9,2/9,-2/9],[1/90,1/45,2/45],[1/90,-1/45,2/45],[1/45,1/90,1/180],[1/45,-1/90,1/180],[0,0,1]]}
A={2:[[1,1,1,0],[0,1,-1,1]],
4:[[1,1,1,1,1,0],[0,1,-1,2,-2,0],[0,1,1,4,4,0],[0,1,-1,8,-8,1]],
6:[[1,1,1,1,1,32,32,0],[0,1,-1,2,-2,16,-16,0],[0,1,1,4,4,8,8,0],[0,1,-1,8,-8,4,-4,0],[0,1,1,16,16,2,2,0],[0,1,-1,32,-32,1,-1,1]]}
f=np.float32
def ax(M,x,axis,t): return np.moveaxis(np.tensordot(np.array(M,t),x.astype(t),([1],[axis])),0,axis).astype(t)
rng=np.random.default_rng(0)
def run(d,s,C=32,K=8,reps=60):
    num=den=0
    for _ in range(reps):
        D=d if d>1 else 1
        x=(rng.random((C,D+2,s+2,s+2))*2-1).astype(f); w=(rng.random((K,C,3,3,3))*2-1).astype(f)
        ref=np.zeros((K,D,s,s))
        for z in range(3):
            for y in range(3):
                for u in range(3):
                    ref+=np.einsum('kc,cdij->kdij',w[:,:,z,y,u].astype(float),x[:,z:z+D,y:y+s,u:u+s].astype(float))
        g=w.astype(float)
        axes=[(2,s),(1,s)] # relative to spatial axes
        X=x
        if d>1: X=ax(B[d],X,1,f); g=ax(G[d],g,2,float)
        X=ax(B[s],X,2,f); X=ax(B[s],X,3,f)
        g=ax(G[s],g,3,float); g=ax(G[s],g,4,float); g=g.astype(f)
        if d>1:
            P=np.zeros((K,)+X.shape[1:],f)
            for c in range(C): P=P+g[:,c]*X[c]
        else:
            P=np.zeros((K,1)+X.shape[2:],f)
            for z in range(3):
                for c in range(C): P[:,0]=P[:,0]+g[:,c,z]*X[c,z]
        if d>1: P=ax(A[d],P,1,f)
        P=ax(A[s],P,2,f); P=ax(A[s],P,3,f)
        num+=((P-ref)**2).sum(); den+=(ref**2).sum()
    return (num/den)**.5
for d,s in [(1,2),(2,2),(1,4),(2,4),(4,4),(1,6),(2,6),(4,6)]: print(f'depth {d} side {s}: {run(d,s):.2e}',flush=True)
