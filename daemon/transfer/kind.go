package transfer

// Kind is the kind of a client's operation. Its names are labels of metrics.
type Kind uint8

// The operations of a client.
const (
	KindOffer Kind = iota + 1
	KindExtend
	KindSeal
	KindWithdraw
	KindTake
	KindCancel
	KindWatch
	KindDrop
	KindBind
	KindPut
	KindGet
)

// KindOf returns an operation's kind.
func KindOf(op Op) Kind {
	switch op.(type) {
	case *OfferOp:
		return KindOffer
	case *ExtendOp:
		return KindExtend
	case *SealOp:
		return KindSeal
	case *WithdrawOp:
		return KindWithdraw
	case *TakeOp:
		return KindTake
	case *CancelOp:
		return KindCancel
	case *WatchOp:
		return KindWatch
	case *DropOp:
		return KindDrop
	case *BindOp:
		return KindBind
	case *PutOp:
		return KindPut
	case *GetOp:
		return KindGet
	}
	return 0
}

var kindNames = [...]string{
	"unknown", KindOffer: "offer", KindExtend: "extend", KindSeal: "seal", KindWithdraw: "withdraw", KindTake: "take", KindCancel: "cancel", KindWatch: "watch", KindDrop: "drop",
	KindBind: "bind", KindPut: "put", KindGet: "get",
}

// String is the kind's word in logs, metrics and the admin interface.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return kindNames[0]
}
