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

	// Ops has bit n set for each opcode n above.
	Ops = 1<<OpNop | 1<<OpOffer | 1<<OpExtend | 1<<OpSeal | 1<<OpWithdraw | 1<<OpTake | 1<<OpCancel | 1<<OpWatch | 1<<OpDrop
)

// Flags and forms.
const (
	LayoutCommit = 1 // LayoutMsg.Flags: the last message

	OpSealed  = 1 // flags of records
	OpLayered = 2

	FormIDs  = 1 // RecGroup.Form
	FormRuns = 2

	FlagMore    = 1 // CQE.Flags
	FlagForeign = 2

	RegisterMemfd = 1 // Register.Kind

	NoSlot = ^uint32(0)
	NoRank = ^uint32(0)
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
)
