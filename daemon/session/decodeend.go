package session

import (
	"bytes"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// Records of the ends of pipes and lookup buffers.

func decodeBind(rec []byte) (*transfer.BindOp, error) {
	if len(rec) < ring.RecBindSize {
		return nil, short("bind", rec, ring.RecBindSize)
	}
	h := ring.RecBind{
		Kind: le.Uint32(rec), Flags: le.Uint32(rec[4:]), Capacity: le.Uint64(rec[8:]), LingerNS: le.Uint64(rec[16:]),
		NameLen: le.Uint16(rec[24:]), TokenLen: le.Uint16(rec[26:]), PeerLen: le.Uint16(rec[28:]),
	}
	home := h.Kind == ring.BindSend || h.Kind == ring.BindOwn
	switch {
	case h.Flags != 0 || !zero(rec[30:ring.RecBindSize]):
		return nil, invalid("bind: flags or reserved fields are not zero")
	case h.Kind < ring.BindSend || h.Kind > ring.BindSelect:
		return nil, invalid("bind: kind is %d: must be 1 (send), 2 (recv), 3 (own) or 4 (select)", h.Kind)
	case home && h.Capacity == 0:
		return nil, invalid("bind: capacity is 0: must be the bytes that the end may hold")
	case !home && (h.Capacity != 0 || h.LingerNS != 0):
		return nil, invalid("bind: capacity is %d and linger %d ns: those are the other end's, so they must be 0", h.Capacity, h.LingerNS)
	case home && h.PeerLen != 0:
		return nil, invalid("bind: peer_len is %d: a sender's or owner's end is on its own node, so it must be 0", h.PeerLen)
	case h.LingerNS > uint64(maxTimeout):
		return nil, invalid("bind: linger is %d ns, the limit is %d (30 days)", h.LingerNS, maxTimeout)
	case h.NameLen == 0 || h.NameLen > ring.MaxName:
		return nil, invalid("bind: name_len is %d: must be 1 to %d", h.NameLen, ring.MaxName)
	case h.TokenLen != 0 && (h.TokenLen < minToken || h.TokenLen > maxToken):
		return nil, invalid("bind: token_len is %d: must be 0, or %d to %d", h.TokenLen, minToken, maxToken)
	case h.PeerLen > maxPeer:
		return nil, invalid("bind: peer_len is %d: the limit is %d", h.PeerLen, maxPeer)
	}
	b := rec[ring.RecBindSize:]
	total := int(h.NameLen) + int(h.TokenLen) + int(h.PeerLen)
	if total > len(b) {
		return nil, invalid("bind: name, token and peer have %d bytes, the record has %d left", total, len(b))
	}
	name, token, peer := b[:h.NameLen], b[h.NameLen:h.NameLen+h.TokenLen], b[h.NameLen+h.TokenLen:total]
	if err := ring.CheckText(name, "name"); err != nil {
		return nil, invalid("bind: %v", err)
	}
	if err := ring.CheckText(peer, "peer"); err != nil {
		return nil, invalid("bind: %v", err)
	}
	rest, err := skipPadding(b, total)
	if err != nil || len(rest) != 0 {
		return nil, invalid("bind: record has %d bytes too many, or padding that is not zero", len(rest))
	}
	return &transfer.BindOp{
		Kind: transfer.BindKind(h.Kind), Name: string(name), Token: bytes.Clone(token), Peer: string(peer),
		Capacity: h.Capacity, Linger: transfer.Time(h.LingerNS),
	}, nil
}

func decodePut(rec []byte, target uint64) (*transfer.PutOp, error) {
	if len(rec) < ring.RecPutSize {
		return nil, short("put", rec, ring.RecPutSize)
	}
	h := ring.RecPut{
		Form: le.Uint32(rec), Flags: le.Uint32(rec[4:]), Bytes: le.Uint64(rec[8:]),
		MetaLen: le.Uint32(rec[16:]), KeyLen: le.Uint32(rec[20:]), NTokens: le.Uint32(rec[24:]), NGroups: le.Uint32(rec[28:]),
	}
	switch {
	case h.Flags != 0 || !zero(rec[32:ring.RecPutSize]):
		return nil, invalid("put: flags or reserved fields are not zero")
	case h.Form < ring.MatchNext || h.Form > ring.MatchKey || h.Form == ring.MatchExact:
		return nil, invalid("put: form is %d: must be 1 (next), 2 (any), 3 (prefix) or 5 (key)", h.Form)
	case h.MetaLen > ring.MaxMeta:
		return nil, invalid("put: meta_len is %d: the limit is %d", h.MetaLen, ring.MaxMeta)
	}
	if err := checkSought(h.KeyLen, h.NTokens, h.Form == ring.MatchKey, h.Form == ring.MatchPrefix); err != nil {
		return nil, invalid("put: %v", err)
	}
	b := rec[ring.RecPutSize:]
	total := int(h.MetaLen) + int(h.KeyLen)
	if total > len(b) {
		return nil, invalid("put: meta and key have %d bytes, the record has %d left", total, len(b))
	}
	own := bytes.Clone(b[:total])
	rest, err := skipPadding(b, total)
	if err != nil {
		return nil, invalid("put: %v", err)
	}
	op := &transfer.PutOp{Target: target, Form: transfer.Match(h.Form), Bytes: h.Bytes, Meta: own[:h.MetaLen:h.MetaLen], Key: own[h.MetaLen:]}
	if op.Tokens, op.Blocks, err = decodeSought(rest, h.NTokens, h.NGroups, h.Bytes, "bytes"); err != nil {
		return nil, invalid("put: %v", err)
	}
	return op, nil
}

func decodeGet(rec []byte, target uint64, timeout transfer.Time) (*transfer.GetOp, error) {
	if len(rec) < ring.RecGetSize {
		return nil, short("get", rec, ring.RecGetSize)
	}
	h := ring.RecGet{
		Match: le.Uint32(rec), Flags: le.Uint32(rec[4:]), Room: le.Uint64(rec[8:]), Seq: le.Uint64(rec[16:]),
		KeyLen: le.Uint32(rec[24:]), NTokens: le.Uint32(rec[28:]), NGroups: le.Uint32(rec[32:]),
	}
	counted := h.Match == ring.MatchNext || h.Match == ring.MatchItem || h.Match == ring.MatchDecline
	switch {
	case h.Flags != 0 || !zero(rec[36:ring.RecGetSize]):
		return nil, invalid("get: flags or reserved fields are not zero")
	case h.Match < ring.MatchNext || h.Match > ring.MatchDecline:
		return nil, invalid("get: match is %d: must be 1 to %d", h.Match, ring.MatchDecline)
	case !counted && h.Seq != 0:
		return nil, invalid("get: seq is %d: match %d has none, so it must be 0", h.Seq, h.Match)
	case h.Match == ring.MatchDecline && h.Room != 0:
		return nil, invalid("get: room is %d: what is declined needs none, so it must be 0", h.Room)
	}
	if err := checkSought(h.KeyLen, h.NTokens, h.Match == ring.MatchKey, h.Match == ring.MatchPrefix || h.Match == ring.MatchExact); err != nil {
		return nil, invalid("get: %v", err)
	}
	b := rec[ring.RecGetSize:]
	if int(h.KeyLen) > len(b) {
		return nil, invalid("get: key has %d bytes, the record has %d left", h.KeyLen, len(b))
	}
	rest, err := skipPadding(b, int(h.KeyLen))
	if err != nil {
		return nil, invalid("get: %v", err)
	}
	op := &transfer.GetOp{Target: target, Match: transfer.Match(h.Match), Room: h.Room, Seq: h.Seq, Key: bytes.Clone(b[:h.KeyLen]), Timeout: timeout}
	if op.Tokens, op.Blocks, err = decodeSought(rest, h.NTokens, h.NGroups, h.Room, "room"); err != nil {
		return nil, invalid("get: %v", err)
	}
	return op, nil
}

// checkSought checks the lengths of the key and the tokens by which items are found.
func checkSought(key, tokens uint32, byKey, byTokens bool) error {
	switch {
	case byKey && (key == 0 || key > maxKey) || !byKey && key != 0:
		return invalid("key_len is %d: must be 1 to %d for key (5), 0 for others", key, maxKey)
	case byTokens && (tokens == 0 || tokens > ring.MaxTokens) || !byTokens && tokens != 0:
		return invalid("ntokens is %d: must be 1 to %d for prefix (3) and exact (4), 0 for others", tokens, ring.MaxTokens)
	}
	return nil
}

// decodeSought copies tokens and blocks. The blocks must cover exactly the size bytes from 0.
func decodeSought(b []byte, n, groups uint32, size uint64, name string) (tokens []uint32, blocks []layout.BlockList, err error) {
	if int(n) > len(b)/4 {
		return nil, nil, invalid("%d tokens have %d bytes, the record has %d left", n, uint64(n)*4, len(b))
	}
	if n > 0 {
		tokens = make([]uint32, n)
		for i := range tokens {
			tokens[i] = le.Uint32(b[i*4:])
		}
	}
	rest, err := skipPadding(b, int(n)*4)
	if err != nil {
		return nil, nil, err
	}
	if (size == 0) != (groups == 0) || groups > 1 {
		return nil, nil, invalid("ngroups is %d and %s %d: must be 1, or both 0", groups, name, size)
	}
	if blocks, err = DecodeBlocks(rest, groups); err != nil {
		return nil, nil, err
	}
	if groups == 1 && (blocks[0].FirstToken != 0 || uint64(blocks[0].NTokens) != size) {
		return nil, nil, invalid("blocks 0: covers tokens %d to %d: must be 0 to %s = %d", blocks[0].FirstToken, blocks[0].FirstToken+blocks[0].NTokens, name, size)
	}
	return tokens, blocks, nil
}
