package daemon

// nearest returns the candidate with the smallest edit distance to a word, and the
// distance. It returns "" when there is no candidate.
func nearest(word string, candidates []string) (best string, distance int) {
	for _, c := range candidates {
		if d := editDistance(word, c); best == "" || d < distance {
			best, distance = c, d
		}
	}
	return best, distance
}

// editDistance counts the insertions, deletions and replacements of bytes from a to b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
