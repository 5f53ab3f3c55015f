package terminal

// ReserveUID returns a uid that no terminal has, of the range that is theirs,
// with its group: for a program that belongs to none of them. It is −1 where
// terminals run as the agent's own user. release must be called when nothing
// runs under it any more. It fails with KindTooMany when none is free.
func (h *Host) ReserveUID() (uid, gid int, release func(), err error) {
	a := account{uid: -1, gid: -1}
	if !h.accounts.own {
		return a.uid, a.gid, func() {}, nil
	}
	if err := h.accounts.reserve(&a); err != nil {
		return 0, 0, nil, err
	}
	return a.uid, a.gid, func() { a.lock.Close() }, nil
}
