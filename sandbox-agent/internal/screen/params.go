package screen

import "github.com/fairlead/fairlead/sandbox-agent/internal/screen/grid"

const (
	maxParams    = 32
	maxSubParams = 32
	maxParam     = 1<<31 - 1
	noParam      = -1 // a subparameter that was left out
)

// params are the parameters of a control sequence. The first is always there.
type params struct {
	values   [maxParams]int32
	subs     [maxSubParams]int32
	subStart [maxParams]uint8 // of each parameter's subparameters in subs
	subEnd   [maxParams]uint8
	n, nSubs int
	inSub    bool // digits belong to a subparameter
	full     bool // there were too many parameters
	subsFull bool // or subparameters
}

// reset makes p the parameters of a sequence without any.
func (p *params) reset() {
	p.n, p.nSubs = 1, 0
	p.values[0], p.subStart[0], p.subEnd[0] = 0, 0, 0
	p.inSub, p.full, p.subsFull = false, false, false
}

// add takes a digit, ':' or ';'.
func (p *params) add(c byte) {
	switch c {
	case ';':
		p.inSub = false
		if p.n == maxParams {
			p.full = true
			return
		}
		p.values[p.n] = 0
		p.subStart[p.n], p.subEnd[p.n] = uint8(p.nSubs), uint8(p.nSubs)
		p.n++
	case ':':
		p.inSub = true
		if p.full || p.nSubs == maxSubParams {
			p.subsFull = true
			return
		}
		p.subs[p.nSubs] = noParam
		p.nSubs++
		p.subEnd[p.n-1]++
	default:
		p.digit(int64(c - '0'))
	}
}

func (p *params) digit(d int64) {
	store := &p.values[p.n-1]
	switch {
	case p.full, p.inSub && (p.subsFull || p.nSubs == 0):
		return
	case p.inSub:
		store = &p.subs[p.nSubs-1]
	}
	if *store == noParam {
		*store = int32(d)
		return
	}
	*store = int32(min(int64(*store)*10+d, maxParam))
}

// get returns parameter i, 0 when it was left out.
func (p *params) get(i int) int {
	if i >= p.n {
		return 0
	}
	return int(p.values[i])
}

// count returns the first parameter, for which 0 means 1.
func (p *params) count() int { return max(int(p.values[0]), 1) }

// sub returns the subparameters of parameter i.
func (p *params) sub(i int) []int32 { return p.subs[p.subStart[i]:p.subEnd[i]] }

// append writes the parameters as they may have come.
func (p *params) append(dst []byte) []byte {
	for i := range p.n {
		if i > 0 {
			dst = append(dst, ';')
		}
		dst = grid.AppendInt(dst, int(p.values[i]))
		for _, v := range p.sub(i) {
			dst = append(dst, ':')
			if v != noParam {
				dst = grid.AppendInt(dst, int(v))
			}
		}
	}
	if p.full {
		dst = append(dst, ';')
	}
	if p.subsFull && p.inSub {
		dst = append(dst, ':')
	}
	return dst
}
