package ring

// Numbers of ring.h that the daemon needs. The golden test compares them with the header.
const (
	ABI    = 1
	ABIMin = 1
	Magic  = 0x4550564b

	CtlMax   = 65536 // bytes of a control message's body
	RingsMax = 16
	ViewSize = 128 // struct kvpipe_view
)

// Types of control messages.
const (
	CtlHello      = 1
	CtlWelcome    = 2
	CtlAck        = 3
	CtlRegister   = 4
	CtlUnregister = 5
	CtlLayout     = 6
	CtlBye        = 7
	CtlPing       = 8
	CtlInvalidate = 9
	CtlRevalidate = 10
)

// Kinds of rings in WELCOME's table.
const (
	KindSQ       = 1
	KindCQ       = 2
	KindRecords  = 3
	KindResults  = 4
	KindLayers   = 5
	KindWork     = 6
	KindWorkDone = 7
)

// Opcodes of submissions.
const (
	OpNop      = 0
	OpOffer    = 1
	OpExtend   = 2
	OpSeal     = 3
	OpWithdraw = 4
	OpTake     = 5
	OpCancel   = 6
	OpWatch    = 7
	OpDrop     = 8
	OpBind     = 9
	OpPut      = 10
	OpGet      = 11

	// Ops has bit n set for each opcode n that the daemon serves.
	Ops = 1<<OpNop | 1<<OpOffer | 1<<OpExtend | 1<<OpSeal | 1<<OpWithdraw | 1<<OpTake | 1<<OpCancel | 1<<OpWatch | 1<<OpDrop |
		1<<OpBind | 1<<OpPut | 1<<OpGet
)

// Flags and forms.
const (
	LayoutCommit = 1 // LayoutMsg.Flags: the last message

	OpSealed  = 1 // flags of records
	OpLayered = 2
	// OpRestarted marks a take to which an earlier daemon had granted bytes: it is only reported as failed.
	OpRestarted = 1 << 31

	SaysGranted = 1 // Welcome.Says
	SaysInvalid = 2
	SaysAgain   = 4

	SQEAgain = 1 // SQE.Flags: submitted before the session came back

	FormIDs  = 1 // RecGroup.Form
	FormRuns = 2

	FlagMore    = 1 // CQE.Flags
	FlagForeign = 2
	FlagShort   = 4

	RegisterMemfd   = 1       // Register.Kind
	RegisterSkip    = 0xffff  // of Register.Flags: bytes of the memfd before the region
	RegisterInvalid = 1 << 16 // without its memory, and without a descriptor

	NoSlot = ^uint32(0)
	NoRank = ^uint32(0)
)

// RoleEndpoint is the HELLO role of an end of a pipe or lookup buffer.
const RoleEndpoint = 3

// Kinds of ends: RecBind.Kind.
const (
	BindSend   = 1
	BindRecv   = 2
	BindOwn    = 3
	BindSelect = 4
)

// How items are found: RecPut.Form, RecGet.Match.
const (
	MatchNext    = 1
	MatchAny     = 2
	MatchPrefix  = 3
	MatchExact   = 4
	MatchKey     = 5
	MatchItem    = 6
	MatchDecline = 7
)

// Limits of items.
const (
	MaxName   = 256
	MaxMeta   = 720
	MaxTokens = 262144
)

// MaxFailed is how many failed runs a result lists; more are cut to "all of the group".
const MaxFailed = 1024

// Offsets of the words in the index pages. Each is alone in its cache line.
const (
	offSQTail       = 0 // ring_c
	offCQHead       = 64
	offCQWaiting    = 128
	offProgress     = 192
	offWorkDoneTail = 256
	offWorkHead     = 320
	sizeRingC       = 384

	offSQHead       = 0 // ring_d
	offCQTail       = 64
	offNeedWakeup   = 128
	offProgressWait = 192
	offClosed       = 256
	offHeartbeat    = 320
	offWorkTail     = 384
	offWorkDoneHead = 448
	sizeRingD       = 512
)

// Sizes of entries.
const (
	SQESize       = 64
	CQESize       = 64
	LayerSlotSize = 64
	ResultSize    = 16
	RunSize       = 12
	GotSize       = 48
)
