//! Text of a wanted length, in tokens of about four ASCII bytes or one Chinese character.

const WORDS: [&str; 48] = [
    "index", "service", "report", "value", "contract", "customer", "engine", "request", "latency",
    "memory", "budget", "table", "column", "section", "clause", "meeting", "summary", "invoice",
    "branch", "commit", "function", "module", "queue", "window", "signal", "station", "harbour",
    "river", "letter", "season", "winter", "market", "bridge", "window", "garden", "teacher",
    "because", "however", "between", "without", "should", "remains", "returns", "contains",
    "answers", "follows", "within", "before",
];
const PHRASES: [&str; 24] = [
    "请根据",
    "上述文件",
    "总结",
    "主要内容",
    "系统",
    "缓存命中",
    "请求",
    "延迟",
    "用户",
    "合同条款",
    "数据表",
    "服务器",
    "应当",
    "如果",
    "因此",
    "报告",
    "会议记录",
    "预算",
    "第三季度",
    "部署方案",
    "模型推理",
    "前缀",
    "网关",
    "负载均衡",
];

/// About `tokens` tokens of text.
pub(super) fn of(rng: &mut fastrand::Rng, tokens: usize, cjk: bool) -> String {
    if cjk {
        chinese(rng, tokens)
    } else {
        english(rng, tokens)
    }
}

fn english(rng: &mut fastrand::Rng, tokens: usize) -> String {
    let mut text = String::with_capacity(tokens * 4 + 16);
    let mut sentence = 0;
    while text.len() < tokens * 4 {
        text.push_str(WORDS[rng.usize(0..WORDS.len())]);
        sentence += 1;
        if sentence > 6 && rng.u8(0..6) == 0 {
            text.push_str(". ");
            sentence = 0;
        } else {
            text.push(' ');
        }
    }
    text
}

fn chinese(rng: &mut fastrand::Rng, tokens: usize) -> String {
    let mut text = String::with_capacity(tokens * 3 + 16);
    let mut written = 0;
    while written < tokens {
        let phrase = PHRASES[rng.usize(0..PHRASES.len())];
        text.push_str(phrase);
        written += phrase.chars().count();
        if rng.u8(0..5) == 0 {
            text.push('，');
            written += 1;
        }
    }
    text
}
