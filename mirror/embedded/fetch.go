package embedded

import (
	"math"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// boundPerPartition shares the bound that a fetch puts on its whole answer out over the
// partitions. A broker that meets that bound inside a partition leaves the partition's
// aborted transactions out of the answer, and readers of committed records take the
// aborted ones for committed; at the bound of a partition it does not.
func boundPerPartition(cluster *kfake.Cluster) {
	const fetch = 1
	cluster.ControlKey(fetch, func(req kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive // its signature
		share(req.(*kmsg.FetchRequest))
		return nil, nil, false // the broker answers it
	})
}

// share moves the bound of the answer to its partitions. Each still gets one batch.
func share(req *kmsg.FetchRequest) {
	limit := req.MaxBytes
	req.MaxBytes = math.MaxInt32
	partitions := 0
	for _, t := range req.Topics {
		partitions += len(t.Partitions)
	}
	if partitions == 0 {
		return // of the session's partitions, whose bounds are known
	}
	each := max(limit/int32(partitions), 1)
	for _, t := range req.Topics {
		for i := range t.Partitions {
			t.Partitions[i].PartitionMaxBytes = min(t.Partitions[i].PartitionMaxBytes, each)
		}
	}
}
