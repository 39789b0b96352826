package shard

// failoverEpochs is how far the first epoch at another server lies above the last one known. A replica
// that was promoted may lack the last raises of the epoch, and the messages under them may be
// mirrored: their positions must not be given again.
const failoverEpochs = 1024

// NextEpoch is the epoch of a shard's next owner. stored is the one in the store; moved tells that
// it was raised at another server than this one, where it may have been raised further; known is
// the highest one that the next owner has ever seen, 0 for none: above stored it tells the same.
func NextEpoch(stored, known int64, moved bool) int64 {
	if moved || known > stored {
		return max(stored, known) + failoverEpochs
	}
	return stored + 1
}
