"""Word lists behind the hand features: one class of words a line, several languages.

Stems that end in `+` stand for the English verb with its endings (prove+: prove, proves, proved,
proving).  The lists are our own; they name what people write, not what a benchmark holds.
"""

from __future__ import annotations

from collections.abc import Iterator

SUPPORTED = "en es de fr pt it zh ja ko ru ar"
"""Languages with words for asking, greeting and thanking below."""

CLASSES: dict[str, str] = {
    # ---- what is asked for
    "proof": """
        prove+ proof proofs derive+ derivation disprove+ theorem theorems lemma corollary
        demuestra demostrar demuestre demostración prueba beweise beweis beweisen zeige
        herleiten démontre démontrer démontrez montre montrez preuve prouve prouver prove
        demonstre demonstrar mostre dimostra dimostrare dimostrazione докажи докажите доказать
        доказательство выведи أثبت برهن اثبت
    """,
    "analyse": """
        why justify+ analyze+ analyse+ evaluate+ assess+ critique+ argue+ reason+ infer+
        implications tradeoff tradeoffs diagnose+ compare+ contrast+ distinguish+ interpret+
        analiza analizar analice compara comparar evalúa justifica analysiere analysieren
        vergleiche vergleichen bewerte begründe analyse analysez comparer comparez évalue
        évaluez justifie justifiez analise compare avalie justifique analizza confronta valuta
        проанализируй сравни сравните обоснуй почему warum pourquoi perché حلل قارن لماذا
    """,
    "design": """
        design+ architect+ architecture implement+ optimize+ optimise+ refactor+ debug+
        troubleshoot+ deadlock deadlocks concurrency concurrent distributed consensus scalable
        throughput latency migrate+ migration invariant invariants diseña diseñar diseñe
        implementa implementar optimiza entwirf entwerfen entwickle implementiere optimiere
        conçois concevoir concevez implémente implémentez optimise projete implemente otimize
        progetta progettare ottimizza спроектируй реализуй разработай оптимизируй صمم نفذ raft
        paxos linearizable linearizability sharding replicated replication consistency
        idempotent backpressure microservices asynchronous multithreaded
    """,
    "compute": """
        compute+ calculate+ solve+ evaluate+ integrate+ integral differentiate+ derivative
        minimize+ maximize+ minimise+ maximise+ determine+ simplify factor+ estimate+ find
        calcula calcular resuelve resolver halla hallar determina berechne berechnen löse
        bestimme ermittle calculez résous résoudre résolvez déterminer déterminez trouve calcule
        resolva determine encontre calcola risolvi trova вычисли вычислите найди найдите реши
        решите рассчитай احسب أوجد حل
    """,
    "plan": """
        plan+ schedule itinerary strategy roadmap constraints constraint subject budgeted
        allocate+ planifica planificar plane planifie planeje pianifica спланируй составь خطط
    """,
    "explain": """
        explain+ describe+ discuss+ elaborate+ outline+ explica explicar erkläre erklären
        explique expliquer expliquez describe descreva spiega spiegare descrivi объясни
        объясните опиши اشرح
    """,
    "write": """
        write+ create+ generate+ compose+ draft+ build+ develop+ make+ escribe escribir redacta
        schreibe schreib erstelle écris écrire écrivez rédige rédigez escreva crie scrivi crea
        напиши создай اكتب
    """,
    "rewrite": """
        rename+ rephrase+ reword+ translate+ summarize+ summarise+ summary shorten+ format
        reformat+ fix typo typos spelling grammar paraphrase+ capitalize+ lowercase uppercase
        sort+ proofread+ bullet traduce traducir resume resumir corrige übersetze übersetzen
        fasse korrigiere traduis traduire traduisez résume résumez corriger traduza resuma
        corrija traduci riassumi correggi переведи переведите сократи исправь ترجم لخص صحح
    """,
    # ---- small talk and errands
    "greet": """
        hi hello hey hiya yo howdy morning evening night goodbye bye hola buenas buenos hallo
        servus moin guten bonjour salut bonsoir coucou olá oi bom boa ciao buongiorno buonasera
        salve привет здравствуйте здравствуй добрый доброе пока مرحبا أهلا السلام tal afternoon
        greetings nite gute abend nacht tag tschüss tschau ahoj buonanotte noches tardes días
        adiós hasta luego boas noite tarde tchau спокойной ночи утро вечер صباح مساء
    """,
    "thanks": """
        thanks thank thx ty cheers appreciated great cool awesome perfect nice gracias danke
        dankeschön vielen merci remerciements obrigado obrigada grazie спасибо благодарю شكرا
        gone sorry welcome lol haha
    """,
    "errand": """
        play+ remind+ reminder reminders alarm alarms timer weather forecast rain music song
        playlist call text+ email emails message+ book+ booking reserve+ reservation restaurant
        flight flights hotel ticket tickets order+ shopping list lists calendar meeting
        appointment turn set add remove+ cancel+ volume lights light traffic directions gas taxi
        uber recipe movie movies show+ rate stars joke radio podcast news delivery pickup
        tracking refund clima tiempo wetter météo tempo погода الطقس wann quand cuándo quando
        когда wifi door oven lamp thermostat alexa siri invoice receipt parking bus train
        station plant plants laundry groceries grocery pizza coffee dinner breakfast lunch
        birthday gift holiday vacation horario tienda laden geschäft magasin loja negozio gare
        estación bahnhof stazione магазин вокзал envío frete spedizione versand livraison
        entrega pedido bestellung commande ordine заказ طلب premium subscription shipping park
    """,
    "account": """
        balance account accounts card cards payment payments pay+ transfer+ bill bills bank
        transaction transactions pin atm deposit withdraw withdrawal fee fees charge+ cash
        credit debit password login phone address currency exchange topup spending income saldo
        konto cuenta tarjeta solde compte conta cartão carta счёт баланс رصيد passwort
        contraseña senha пароль парол username profile subscription refund receipt iban invoice
        rechnung factura facture fattura fatura
    """,
    "status": """
        status opening hours open closed price cost deadline version date today tomorrow
        yesterday tonight now currently next last when where who name named called capital
        population located dónde cuál wo wer où qui quel quelle onde qual dove chi где кто
        сколько أين من cuánta cuesta cuestan precio kostet kosten preis combien coûte coûtent
        prix quanto quanta custa custam preço costa costano prezzo quando стоит цена سعر
    """,
    # ---- questions
    "what": """
        what whats which qué que cuál was welche quoi quel qual cosa che что какой какая какие
        ما ماذا
    """,
    "how": "how cómo como wie comment come как كيف",
    "i": "i me my mine myself yo mi ich mein meine je mon ma mes eu meu minha io mio я мой моя",
    "you": "you your yours tu usted du dein vous votre você ты вы твой ваш",
    "polite": """
        please kindly could would can por favor bitte plaît per piacere пожалуйста من فضلك
    """,
    # ---- logic and quantities
    "condition": """
        if suppose assume+ given consider+ let whenever unless provided such otherwise therefore
        hence thus then implies si wenn falls se если пусть إذا
    """,
    "quantifier": """
        all every each any some none no exactly least most only both either neither at todos
        todo jede jeder alle tous chaque cada ogni все каждый كل
    """,
    "negation": """
        not except false incorrect never without cannot isn doesn don didn won nicht kein no ne
        pas não non не нет
    """,
    "order": """
        more less than times twice half double triple total remaining altogether fewer greater
        difference sum product ratio percent percentage average per left mehr weniger doppelt
        más menos veces mitad plus moins fois mais больше меньше раз
    """,
    "number": """
        one two three four five six seven eight nine ten eleven twelve dozen hundred thousand
        million first second third nth th
    """,
    "time": """
        day days week weeks month months year years hour hours minute minutes second seconds
        daily weekly
    """,
    # ---- fields
    "math": """
        prime primes integer integers polynomial matrix matrices vector vectors eigenvalue
        eigenvalues probability probabilities random variable variables equation equations
        function functions graph group ring field modulo mod divisible divisor gcd irrational
        rational real complex convergence converges continuous bounded sequence series limit
        sqrt sin cos tan log triangle circle radius angle perimeter area volume permutation
        permutations combinations isomorphic homomorphism topology manifold fibonacci factorial
        digits digit root infinitely raíz irracional primo primos números wurzel primzahl
        primzahlen unendlich racine irrationnel premiers nombres premier raiz irracionais
        infinitos radice irrazionale primi корень простых простое чисел число иррационально
        иррационален бесконечно матрица جذر عدد أولي الأعداد الأولية theorem lemma algebra
        algebraic calculus countable uncountable cardinality diagonalize residue laplace fourier
        taylor gaussian bayes martingale stochastic logarithm exponent coefficient coefficients
        quotient remainder determinant parabola hypotenuse polygon convex concave monotone
        induction bijection injective surjective subset subsets derivada integral límite
        ecuación matriz autovalores ableitung grenzwert gleichung eigenwerte folge menge dérivée
        intégrale limite équation matrice fonction suite equação derivata equazione insieme
        производная производную интеграл уравнение множество функция последовательность сходится
        تكامل معادلة مشتقة متتالية
    """,
    "physics": """
        velocity acceleration force mass energy momentum voltage current resistance magnetic
        electric field charge wavelength frequency quantum photon electron pressure temperature
        thermodynamic entropy kinetic potential friction gravitational capacitor resistor
        circuit torque beam stress strain fluid viscosity heat gas newton joules kg
    """,
    "chemistry": """
        mol molar moles reaction reactions equilibrium acid base ph oxidation reduction enzyme
        compound ion ions solution concentration molecule molecules atom atoms bond bonds
        isotope catalyst enthalpy titration stoichiometry ml polymer organic
    """,
    "medicine": """
        patient patients diagnosis symptom symptoms treatment therapy dose dosage disease
        syndrome chronic acute bleeding blood pressure serum clinical inr anticoagulation
        warfarin antibiotic antibiotics insulin diabetes diabetic hypertension infection renal
        hepatic cardiac pulmonary tumor cancer lesion biopsy fever pain examination gene genes
        protein proteins receptor cell cells bacteria virus paciente tratamiento diagnóstico
        behandlung diagnose patienten patientin traitement diagnostic tratamento paziente
        terapia пациент пациента диагноз лечение مريض علاج heparin anticoagulant dosing drug
        drugs mg contraindicated contraindication ecg ct mri stroke sepsis septic shock anemia
        anaemia jaundice dyspnea dyspnoea stridor cough rash seizure seizures pregnancy pregnant
        neonate infant newborn toddler murmur embolism thrombosis fibrillation creatinine sodium
        potassium metabolic acidosis liver kidney lung heart prognosis differential dolor
        douleur fièvre schmerzen fieber febbre dolore одышка боль ألم حمى disnea dyspnée
    """,
    "law": """
        court plaintiff defendant statute liability contract breach negligence tort jurisdiction
        constitutional amendment ucc remedies remedy clause seller buyer lease tenant landlord
        estoppel criminal murder felony evidence admissible hearsay appeal judge jury sued sues
        lawsuit legal law contrato demandado tribunal vertrag haftung gericht klage contrat
        responsabilité responsabilidade contratto responsabilità договор суд иск عقد محكمة
        enforceable enforceability arbitration trustee fiduciary negligent damages rescind
        rescission repudiates repudiation offeror offeree consideration noncompete compete
        copyright patent infringement gdpr bgb haftet verkäufer käufer vendedor comprador
        vendeur acheteur venditore acquirente licence licensor licensee warrant
    """,
    "economy": """
        demand supply elasticity marginal equilibrium inflation gdp monetary fiscal interest
        investment tax asset assets liabilities depreciation revenue profit market markets firm
        firms capital dividend bond bonds stock portfolio regression hypothesis variance
    """,
    "society": """
        theory moral morality ethical philosopher argument fallacy utilitarian kant cognitive
        behavior psychologist personality social political government policy war treaty century
        empire revolution culture religion state states rights international
    """,
    "computing": """
        algorithm algorithms complexity runtime recursion recursive pointer thread threads mutex
        lock locks async await memory cache heap stack queue tree binary hash database sql query
        index transaction kernel compiler api server client docker kubernetes tcp http
        encryption crypto neural gradient training overfitting algoritmo algorithmus algorithme
        алгоритм خوارزمية parser lstm transformer backprop backpropagation softmax attention
        embedding cuda gpu gpus sharded shard replica replicas raft paxos linearizability atomic
        atomics semaphore race deadlock garbage collector allocator bytecode
    """,
    "coding": """
        python javascript java typescript rust golang sql html css bash regex code function
        class method loop array string list dict variable script program error exception bug git
        commit npm pip import return returns def print compile stacktrace función funktion
        fonction função funzione функция функцию código код
    """,
    "english": """
        the of and to is in it that for on with as are was by at from be this an have has they
    """,
    "foreign": """
        el la los las de del en un una es por para con que y se su más está son der die das und
        ist ein eine nicht mit von zu den dem auf für im wie sind le les des du une est et dans
        qui pour sur pas ce cette au aux os as da do dos em é não uma com um il lo gli di che è
        per sono della nel non alla het een van niet och att jest nie się og på det ve bir için
        bu qué cómo eres ich bin hast je suis tu
    """,
}

CJK: dict[str, str] = {
    "proof": "证明 證明 推导 証明 導出 증명 유도",
    "analyse": """
        为什么 為什麼 分析 比较 比較 评估 評価 論じ なぜ 왜 분석 비교 평가 看法 原因 利弊 区别
        论述 論じて 根拠 違い 원인 차이 논하 근거
    """,
    "design": "设计 設計 实现 實現 优化 最適化 実装 调试 死锁 설계 구현 최적화 교착",
    "compute": """
        计算 計算 求解 求出 解方程 求め 解け 解き 계산 구하 풀어 余数 求 等于 余り 割った 積分
        微分 나머지 나눈 구하시오 제곱 적분 미분
    """,
    "plan": """
        规划 計画 계획 排班 安排 分配 计划 预算 割り当て 当番 スケジュール 予算 근무표 배정 일정
        예산
    """,
    "explain": "解释 解釋 说明 説明 설명",
    "write": "写 寫 書いて 作って 써줘 작성",
    "rewrite": "翻译 翻譯 总结 總結 改写 翻訳 要約 번역 요약",
    "greet": """
        你好 您好 早上好 晚上好 再见 こんにちは おはよう こんばんは 안녕 반가 周末 累 困 饿 无聊
        週末 眠い 疲れ お腹 暇 주말 배고 피곤 졸려 심심 잘
    """,
    "thanks": "谢谢 謝謝 多谢 ありがと 감사 고마워",
    "errand": """
        天气 提醒 闹钟 播放 预订 天気 予約 音楽 アラーム 날씨 알람 예약 음악 超市 药店 图书馆
        车站 叫我起床 薬局 図書館 駅 起こして スーパー 약국 도서관 역 마트 깨워
    """,
    "account": """
        余额 账户 银行 转账 残高 口座 잔액 계좌 订单 密码 发票 取消 パスワード キャンセル 予約
        注文 領収書 비밀번호 주문 취소 영수증
    """,
    "status": """
        几点 在哪 多少钱 今天 明天 何時 どこ いくら 今日 몇시 어디 얼마 오늘 现在 开着 开门 关门
        多少天 今 開いて 閉まって 明日 何日 지금 열려 닫 내일 며칠 누가
    """,
    "what": "什么 什麼 何 무엇 뭐",
    "how": "怎么 如何 怎樣 どう 어떻게",
    "condition": "如果 假设 設 もし 만약 가정",
    "quantifier": "任意 所有 每个 すべて 全ての 모든",
    "math": """
        根号 无理数 無理数 素数 质数 整数 方程 函数 関数 概率 確率 矩阵 行列 无穷 소수 무리수
        방정식 확률 무한히 几何 三角形 导数 积分 数列 极限 级数 極限 微分 증명 수열 극한 삼각형
        미분 적분 정수
    """,
    "medicine": """
        患者 病人 诊断 治疗 診断 治療 환자 진단 치료 血压 头痛 孕妇 发烧 症状 剂量 感染 药物
        手术 頭痛 発熱 妊娠 投与 鑑別 薬 血圧 두통 증상 임신 처치 복용 투여 감염 혈압 약물
    """,
    "law": """
        法律 合同 法院 契約 裁判 계약 법원 소송 房东 租客 租约 解除 赔偿 劳动法 继承 起诉 侵权
        賃貸 借主 貸主 解雇 相続 損害賠償 訴訟 임대인 임차인 보증금 해고 상속 손해배상 법적
        계약서
    """,
    "computing": """
        算法 线程 并发 分布式 アルゴリズム 分散 알고리즘 분산 缓存 高并发 数据库 不一致 事务
        死锁 トランザクション デッドロック キャッシュ データベース 쿼리 인덱스 트랜잭션 캐시
        데이터베이스 교착
    """,
    "coding": "代码 代碼 程序 コード プログラム 코드 프로그램",
    "society": "革命 战争 思想 哲学 社会 歴史 戦争 혁명 전쟁 사상 철학",
    "economy": "经济 危机 通胀 失业 景気 金融 失業 インフレ 경제 통화 실업 인플레이션 정책",
    "i": "我 私 僕 나는 저는 제가 내",
}

STEMS: dict[str, str] = {
    "law": """
        arrend inquilin alquil contrat rescis rescind jurídic abogad despid indemniz herenc
        mieter vermiet mietvertr kündig arbeitnehm arbeitgeb rechtsanw haftet haftung abfind
        schadenersatz bailleur locatair propriét licenci avocat juridiq hérit préavis résili
        indemnit locatár locador demissão advog herança indeniz aluguel locator affitt contratt
        avvocat giuridic eredit risarcim аренд договор расторг судеб наслед увольн работодат
        юрист адвокат ответствен взыск компенсац неустойк مؤجر مستأجر إيجار عقد فسخ قانون محام
        دعوى تعويض ميراث
    """,
    "medicine": """
        pacient enfermedad síntom fiebre embaraz medicament infecci antibiót cirug diabét úlcera
        ictericia hipertens krankheit symptom schwanger medikament infekt antibio säugling
        differentialdiag blutdruck maladi symptôm fièvre enceint grossesse médicament nourrisson
        doenç sintom febre gravid remédi hipertensão pazient malatti febbr farmac dosagg
        infezion anziano болезн больн диагноз лечен лечит симптом болит беременн лекарств
        дозировк инфекц антибиот опухол давлени рвот кровотеч مريض مرض تشخيص علاج نعالج أعراض
        حمى حامل دواء جرعة عدوى سكري نزيف التهاب
    """,
    "math": """
        ecuacion derivad integral matrices polinom probabil teorema fracci geometr triángul
        división divisor gleichung ableitung wahrschein primzahl extremst nullstell dreieck
        vektor teiler équation dérivé intégral polynôm théorèm triangl divisib equaç polinôm
        triângul equazion derivat matric radice triangol уравнен производн интеграл матриц
        вероятн многочлен делит делящ делен остат теорем множеств треугольн معادل مشتق تكامل
        مصفوف احتمال جذر باقي قسمة مثلث
    """,
    "analyse": """
        compar contrast evalú analiz justifiq argument critic vergleich bewert analys begründ
        erörter ursache stellungnahme évalu analys justifi critiq avali confront valuta
        analizz giustific сравн оцени анализ обоснуй причин аргумент قارن حلل ناقش أسباب برر
    """,
    "plan": """
        turnos planific organiza presupuest dienstplan schichtplan zuteil planifi répart planej
        escala pianific organizz turni расписан распредел график планир бюджет مناوبات جدول وزع
    """,
    "design": """
        concurren distribuid tolerante escalab verteilt nebenläuf fehlertoler réparti toléran
        projet distribuit tollerant распредел реализ отказоустойч масштаб موزع تزامن يتحمل
    """,
    "computing": """
        algoritm hilos caché consulta transacci abfrage datenbank algorithm requête transaction
        base transaç thread блокиров потокобез очеред кэш алгоритм транзакц خوارزم خوادم
    """,
    "society": """
        filosof revoluci guerra teorí imperio moral philosoph revolution krieg theorie révolution
        guerre théori empire revoluç teoria imper война войн революц теори философ обществ
        ثورة حرب نظري فلسف
    """,
    "economy": """
        econom inflaci desemple impuesto mercado wirtschaft arbeitslos steuer économ chômage
        impôt inflaç desempreg imposto disoccup impost экономик инфляц налог безработ اقتصاد
        تضخم ضريب بطالة
    """,
    "i": """
        tengo quiero necesito estoy puedo quisiera habe möchte brauche suis veux peux voudrais
        tenho quero preciso estou posso voglio posso vorrei devo хочу могу мне меня нужно моего
        моей мои أنا أريد عندي لدي أحتاج
    """,
    "greet": """
        hambre sueño cansad aburrid contento müde hunger durst langweil wochenend faim fatigué
        ennui journée vacances fome cansaço sonno stanco giornata скучн голод устал выходн
        праздник متعب جائع يومك عطلة نعسان
    """,
    "status": """
        hoy abiert cerrad mañana próxim cuánt heute morgen offen geöffnet geschlossen nächst
        demain ouvert fermé prochain hoje aberta aberto fechad amanhã próxim oggi aperto aperta
        chius domani prossim сегодня завтра открыт закрыт сейчас следующ اليوم غدا مفتوح مغلق
        الآن
    """,
    "errand": """
        alarma despert farmaci supermercad bibliotec panader autobús recuérd llama lista compra
        wecker apotheke supermarkt bibliothek bäckerei einkauf erinner réveil pharmacie
        supermarché bibliothèque boulangerie rappell courses despertador farmáci padaria lembr
        compras sveglia farmacia supermercato biblioteca panett ricord spesa будильник аптек
        магазин супермаркет библиотек напомн поставь купи صيدلي متجر مكتبة ذكرني منبه موعد
    """,
    "account": """
        contraseñ factura reserva suscripci passwort rechnung buchung réservation abonnement
        senha fatura assinatura bolletta prenotazion abbonament парол счёт счет заказ подписк
        كلمة فاتورة حجز طلب
    """,
    "rewrite": """
        tradu übersetz korrigier traduis corrig traduz traduci перевед исправ ترجم صحح
    """,
    "write": """
        escrib redact schreib écri rédig escrev scriv напиш اكتب رسالة
    """,
    "proof": """
        demuestr demostr pruebe beweis démontr prouv demonstr dimostr докаж доказ أثبت برهن
    """,
    "compute": """
        calcul resuelv resolv berechn bestimm löse résou détermin risolv вычисл посчит найдит
        решит احسب أوجد
    """,
    "foreign": """
        muy también porque está están tiene hacer puede aber auch wenn noch oder wird werden
        haben sein keine très aussi avec mais être avoir fait peut você também isso muito fazer
        pode molto anche perché essere fare quest это как что был если или для ещё هذا هذه في
        على إلى
    """,
}
"""Beginnings of words, for texts that are not English: what the lists above lack of their forms."""

PHRASES: dict[str, str] = {
    "show that": "proof",
    "show by": "proof",
    "is it true that": "proof",
    "how many ways": "math",
    "root cause": "analyse",
    "step by step": "analyse",
    "trade-off": "analyse",
    "pros and cons": "analyse",
    "lock-free": "design",
    "fault-toler": "design",
    "c++": "coding",
    "c#": "coding",
    "complexity": "computing",
    "at least": "plan",
    "at most": "plan",
    "so that": "plan",
    "such that": "condition",
    "subject to": "plan",
    " must ": "plan",
    "year-old": "medicine",
    " year old": "medicine",
    "mg/": "medicine",
    "mmol": "medicine",
    "as soon as": "status",
}
"""What single words do not tell, looked for in the text in lower case."""

STRANGERS = frozenset(
    [
        "jest",
        "się",
        "nie",
        "że",
        "czy",
        "jak",
        "dla",
        "przez",
        "został",
        "który",
        "oraz",
        "ponieważ",
        "dlaczego",
        "proszę",
        "udowodnij",
        "het",
        "een",
        "niet",
        "zijn",
        "voor",
        "wat",
        "hoe",
        "waarom",
        "wordt",
        "naar",
        "ook",
        "deze",
        "dit",
        "kunt",
        "schrijf",
        "leg",
        "bewijs",
        "och",
        "att",
        "är",
        "inte",
        "för",
        "vad",
        "hur",
        "varför",
        "jag",
        "som",
        "till",
        "skriv",
        "förklara",
        "bevisa",
        "ikke",
        "hvad",
        "hvordan",
        "hvorfor",
        "jeg",
        "skriv",
        "forklar",
        "ei",
        "että",
        "miksi",
        "mikä",
        "miten",
        "kuinka",
        "selitä",
        "todista",
        "olen",
        "ovat",
        "ve",
        "bir",
        "için",
        "neden",
        "nasıl",
        "değil",
        "bu",
        "ne",
        "olduğunu",
        "ispatla",
        "açıkla",
        "kaç",
        "là",
        "của",
        "không",
        "và",
        "cho",
        "được",
        "một",
        "trong",
        "những",
        "hãy",
        "chứng",
        "minh",
        "tại",
        "sao",
        "như",
        "thế",
        "nào",
        "je",
        "jsou",
        "proč",
        "jak",
        "není",
        "dokažte",
        "prosím",
        "vysvětli",
        "és",
        "egy",
        "hogy",
        "miért",
        "nem",
        "hogyan",
        "az",
        "bizonyítsd",
        "și",
        "este",
        "pentru",
        "cum",
        "nu",
        "ce",
        "sunt",
        "yang",
        "dan",
        "untuk",
        "adalah",
        "bagaimana",
        "mengapa",
        "tidak",
        "apa",
        "jelaskan",
        "buktikan",
        "ini",
        "itu",
        "dengan",
        "dari",
        "чому",
        "що",
        "як",
        "доведіть",
        "є",
        "та",
        "це",
        "для",
    ]
)
"""Frequent words of languages of which the lists above know little; some are shared with them, so
one word proves nothing."""

FIELD_BITS = 12
"""Width of one class's counter in the packed sum: 4,095 words, more than 2,000 characters hold."""

NAMES = tuple(CLASSES)


def _forms(stem: str) -> Iterator[str]:
    if not stem.endswith("+"):
        yield stem
        return
    base = stem[:-1]
    yield from (base, base + "s")
    root = base[:-1] if base.endswith("e") else base
    yield from (root + "ed", root + "ing")


def packed() -> dict[str, int]:
    """Word -> an integer with a one in the counter of each class the word is in."""
    out: dict[str, int] = {}
    for place, name in enumerate(NAMES):
        for word in {form for stem in CLASSES[name].split() for form in _forms(stem)}:
            out[word] = out.get(word, 0) + (1 << place * FIELD_BITS)
    return out


def packed_phrases() -> dict[str, int]:
    """Phrase -> the same kind of integer."""
    return {text: 1 << NAMES.index(name) * FIELD_BITS for text, name in PHRASES.items()}


def packed_cjk() -> dict[str, int]:
    """Phrase in a script without spaces -> the same kind of integer."""
    return _packed_texts(CJK)


def packed_stems() -> dict[str, int]:
    """Beginning of a word -> the same kind of integer."""
    return _packed_texts(STEMS)


def _packed_texts(lists: dict[str, str]) -> dict[str, int]:
    out: dict[str, int] = {}
    for name, texts in lists.items():
        for text in sorted(set(texts.split())):
            out[text] = out.get(text, 0) + (1 << NAMES.index(name) * FIELD_BITS)
    return out
