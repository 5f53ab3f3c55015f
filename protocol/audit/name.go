package audit

import (
	"fmt"
	"strconv"
	"strings"
)

// A file is named by the number of its first record, so that names sort.
const (
	namePrefix = "audit-"
	nameSuffix = ".jsonl"
	nameDigits = 16
)

// FileName returns the name of the file that begins with record sequence.
func FileName(sequence uint64) string {
	return fmt.Sprintf("%s%0*d%s", namePrefix, nameDigits, sequence, nameSuffix)
}

// FileSequence returns the number of the first record of the file called name,
// and false for other files.
func FileSequence(name string) (uint64, bool) {
	digits, ok := strings.CutPrefix(name, namePrefix)
	if !ok {
		return 0, false
	}
	digits, ok = strings.CutSuffix(digits, nameSuffix)
	if !ok || len(digits) < nameDigits {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil && n > 0 && FileName(n) == name
}
