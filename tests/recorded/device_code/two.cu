__global__ void hello(int*a){a[threadIdx.x]=threadIdx.x;}
__global__ void world(float*a){a[threadIdx.x]*=2.f;}
int main(){hello<<<1,1>>>(nullptr);world<<<1,1>>>(nullptr);return 0;}
