# The cluster's addresses. All of them live in network namespaces of our own; the host has one leg in, a veth pair.
#
#   host 10.99.0.254 --veth-- bridge 10.99.0.1 (API server, DNS) --veth-- node I 10.99.0.(10+I) --ptp-- pods 10.244.I.0/24

host_link=dmindex0 # the host's end of the pair
api_ip=10.99.0.1
host_ip=10.99.0.254
node_net=10.99.0.0/24
service_net=10.96.0.0/16
service_ip=10.96.0.1 # the first one is always the API server's
dns_ip=10.96.0.10
pod_net=10.244.0.0/16

node_ip()  { echo "10.99.0.$((10 + $1))"; }
pods_of()  { echo "10.244.$1.0/24"; }
export host_link api_ip host_ip node_net service_net service_ip dns_ip pod_net

# link_owner : the state folder of the cluster that the host's link belongs to; nothing when there is no such link.
link_owner() { ip -details link show "$host_link" 2>/dev/null | sed -n 's/^ *alias //p' || true; }
