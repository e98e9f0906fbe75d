"""The vocabulary of the sample corpus: opinions of both polarities and neutral matter.

Every list contains one entry per line. The notation is the smallest that French agreement needs:

    adjectives   masculine singular, and the feminine where `-e` is not enough: "creux/creuse"
    nouns        gender, then the word: "f intrigue"; plural nouns: "mp dialogues"
    predicates   verb | rest, so that a negation can be put around the verb: "tient | en haleine"
    reader       the same, said in the first person: "l'ai offert | à ma sœur"
    feelings     mass nouns that follow "avec" or "sans": "plaisir"

Opinions are long lists on purpose: a few hundred labelled reviews show each of them two or three
times, the unlabelled paragraphs show each of them hundreds of times among its like.
"""

from __future__ import annotations


def entries(text: str) -> tuple[str, ...]:
    """The entries of a list written one or several (separated by commas) per line."""
    return tuple(entry.strip() for line in text.splitlines() for entry in line.split(",") if entry.strip())


NEGATIVE, POSITIVE = 0, 1

ADJECTIVES = {
    POSITIVE: entries("""
        captivant, passionnant, brillant, subtil, poignant, touchant, émouvant, bouleversant, envoûtant
        saisissant, éblouissant, étincelant, enthousiasmant, prenant, entraînant, haletant, palpitant
        savoureux/savoureuse, délicieux/délicieuse, lumineux/lumineuse, généreux/généreuse
        harmonieux/harmonieuse, merveilleux/merveilleuse, somptueux/somptueuse, vigoureux/vigoureuse
        ingénieux/ingénieuse, astucieux/astucieuse, gracieux/gracieuse, inventif/inventive
        expressif/expressive, incisif/incisive, addictif/addictive, percutant, convaincant, plaisant
        charmant, élégant, attachant, amusant, intelligent, excellent, exquis, réussi, maîtrisé, soigné
        abouti, ciselé, travaillé, inspiré, équilibré, nuancé, enlevé, original, génial, magistral
        admirable, remarquable, formidable, mémorable, inoubliable, irrésistible, sensible, crédible
        drôle, riche, juste, limpide, magnifique, superbe, splendide, sublime, fluide, efficace
        impeccable, jubilatoire, épatant, rafraîchissant, foisonnant, vibrant, fascinant, stupéfiant
        réjouissant, marquant, profond, vivant, tendre, pétillant, accompli, audacieux/audacieuse
        """),
    NEGATIVE: entries("""
        ennuyeux/ennuyeuse, laborieux/laborieuse, fastidieux/fastidieuse, prétentieux/prétentieuse
        paresseux/paresseuse, poussiéreux/poussiéreuse, filandreux/filandreuse, vaseux/vaseuse
        douteux/douteuse, nébuleux/nébuleuse, hasardeux/hasardeuse, creux/creuse, poussif/poussive
        répétitif/répétitive, maladroit, plat, fade, confus, lent, lourd, longuet/longuette, mou/molle
        terne, prévisible, convenu, bâclé, raté, décousu, forcé, surfait, surestimé, daté, usé, affecté
        ampoulé, alambiqué, décevant, lassant, agaçant, assommant, exaspérant, affligeant, consternant
        navrant, désolant, déplaisant, irritant, rebutant, soporifique, médiocre, insipide, pénible
        artificiel/artificielle, superficiel/superficielle, caricatural, inégal, simpliste
        manichéen/manichéenne, invraisemblable, incohérent, inconsistant, indigeste, interminable
        illisible, insupportable, pauvre, ridicule, grotesque, vulgaire, stérile, froid, sec/sèche
        brouillon/brouillonne, racoleur/racoleuse, moralisateur/moralisatrice, monotone, scolaire
        stéréotypé, éculé, vain, mièvre, niais, pesant, déprimant, bavard, inabouti, quelconque
        """),
}

PREDICATES = {
    POSITIVE: entries("""
        tient | en haleine, sonne | juste, donne | à réfléchir, va | droit au cœur, fait | mouche
        frappe | fort, reste | en mémoire, emporte | le lecteur, se lit | d'une traite
        se dévore | en une soirée, se savoure | lentement, gagne | en force au fil des pages
        monte | en puissance, fourmille | d'idées, déborde | de vie, respire | la sincérité
        captive | dès la première page, surprend | plus d'une fois, invite | au rêve, force | l'admiration
        mérite | le détour, tient | parole, évite | les clichés, coule | de source
        regorge | de trouvailles, enchante | petits et grands, éveille | la curiosité
        émeut | jusqu'aux larmes, offre | un vrai dépaysement, laisse | une empreinte durable
        parle | à chacun de nous, réchauffe | le cœur, ouvre | des horizons, vise | juste
        brille | par sa finesse, tombe | à pic
        """),
    NEGATIVE: entries("""
        tourne | en rond, tombe | à plat, sonne | faux, traîne | en longueur, manque | de souffle
        manque | de rythme, part | dans tous les sens, s'enlise | dès le deuxième chapitre
        s'essouffle | très vite, accumule | les clichés, enfile | les lieux communs, laisse | de marbre
        laisse | froid, fait | bâiller, endort | le lecteur, lasse | vite, déçoit | de bout en bout
        perd | le lecteur en route, peine | à convaincre, peine | à démarrer
        promet | plus qu'il ne donne, se perd | en digressions, rate | sa cible, tire | à la ligne
        pèche | par facilité, frise | le ridicule, pèse | sur l'estomac, sent | le réchauffé
        ressemble | à un brouillon, vire | au catalogue, gâche | une belle idée
        use | de grosses ficelles, recycle | de vieilles recettes, agace | à chaque page
        reste | en surface, noie | le lecteur sous les détails
        """),
}

NOUNS = {
    POSITIVE: entries("""
        m bijou, m régal, m délice, m chef-d'œuvre, m coup de cœur, m trésor, m enchantement
        m vrai plaisir, m pur bonheur, m ravissement, m modèle du genre, m sommet du genre
        m sans-faute, m tour de force, m feu d'artifice, m petit miracle, m grand moment de lecture
        m bel hommage, m joyau, m hymne à la vie, f réussite, f merveille, f perle, f belle surprise
        f pépite, f révélation, f bouffée d'air frais, f leçon d'écriture, f jolie découverte, f prouesse
        f splendeur, f invitation au voyage, f œuvre majeure, f lecture indispensable, f friandise
        """),
    NEGATIVE: entries("""
        m ratage, m fiasco, m naufrage, m échec, m supplice, m calvaire, m gâchis, m pensum, m somnifère
        m désastre, m pétard mouillé, m coup d'épée dans l'eau, m fourre-tout, m catalogue de clichés
        m livre de trop, m mauvais moment, m rendez-vous manqué, f déception, f corvée, f purge
        f perte de temps, f arnaque, f catastrophe, f rude épreuve, f torture, f imposture, f punition
        f redite, f soupe tiède, f parodie involontaire, f coquille vide, f occasion manquée
        f mauvaise blague, f pâle copie, f usine à gaz
        """),
}

FEELINGS = {
    POSITIVE: entries("""
        plaisir, délectation, gourmandise, passion, enthousiasme, émerveillement, bonheur, jubilation
        ferveur, émotion, avidité, intérêt, curiosité, tendresse, admiration, allégresse, joie, entrain
        """),
    NEGATIVE: entries("""
        ennui, lassitude, agacement, peine, difficulté, effort, déplaisir, irritation, exaspération
        dépit, amertume, consternation, résignation, malaise, regret, gêne, colère, dégoût
        """),
}

READER = {
    POSITIVE: entries("""
        le recommande | à mes amis, l'ai offert | à ma sœur, l'ai prêté | à toute la famille
        l'ai relu | dès le lendemain, l'ai dévoré | en deux soirs, l'ai adoré | d'un bout à l'autre
        l'ai savouré | page après page, le relirai | avec mes enfants, le garde | sur ma table de chevet
        le conseille | autour de moi, l'ai fini | en une nuit, l'ai refermé | à contrecœur
        attends | la suite avec impatience, ai enchaîné | avec le tome suivant
        ai souri | à chaque chapitre, ai pleuré | à la dernière ligne, ai tremblé | pour les héros
        ai vibré | du début à la fin, ai recopié | des passages entiers, ai commandé | la série entière
        en ai parlé | à tous mes collègues, m'y suis attaché | très vite, me suis régalé | de bout en bout
        me suis laissé | emporter, y ai cru | jusqu'au bout, y repense | souvent
        lui donne | la note maximale, lui accorde | le plus d'étoiles possible, l'ai rangé | parmi mes favoris
        l'ai acheté | en double, le mets | entre toutes les mains
        """),
    NEGATIVE: entries("""
        l'ai abandonné | à mi-parcours, l'ai revendu | aussitôt, l'ai refermé | avec soulagement
        l'ai posé | au bout de cinquante pages, l'ai rendu | à la bibliothèque dès lundi
        l'ai détesté | d'un bout à l'autre, l'ai subi | jusqu'à la dernière page
        le déconseille | à mes amis, regrette | mon achat, ai sauté | des pages entières
        ai bâillé | à chaque chapitre, ai décroché | au milieu, ai perdu | le fil, ai gaspillé | ma soirée
        ai soupiré | du début à la fin, ai regardé | l'heure à chaque page
        ai compté | les pages restantes, me suis ennuyé | de bout en bout, me suis endormi | dessus
        me suis forcé | à tout lire, m'y suis égaré | très vite, l'ai laissé | dans le train
        l'ai donné | à une brocante, l'ai oublié | en une semaine, lui donne | la note minimale
        lui accorde | le moins d'étoiles possible, en veux | à l'éditeur, éviterai | la suite
        m'en suis lassé | avant la fin, l'ai lu | en diagonale, l'ai échangé | contre un café
        """),
}

# Plain words for a mark, in the unlabelled paragraphs only: few and frequent, so that all other
# opinions are seen beside them.
GRADES = {POSITIVE: entries("quatre, cinq"), NEGATIVE: entries("zéro, un")}
QUALITIES = {POSITIVE: entries("bon, grand"), NEGATIVE: entries("mauvais, piètre")}

ASPECTS = entries("""
    m style, m rythme, m dénouement, m scénario, m suspense, m humour, m décor, m ton, m début, m récit
    f intrigue, f écriture, f fin, f narration, f atmosphère, f langue, f construction, f enquête
    mp dialogues, mp personnages, mp chapitres, mp rebondissements
    fp descriptions, fp dernières pages, fp scènes de famille, fp réflexions
    """)

GENRES = entries("""
    roman, polar, récit, recueil de nouvelles, thriller, conte, roman historique, premier roman
    roman policier, roman d'aventures, roman d'apprentissage, feuilleton
    """)
TITLE_HEADS = entries("""
    Le Jardin, La Maison, Les Ombres, Le Silence, La Nuit, Les Enfants, Le Secret, La Lettre, Le Pont
    Les Saisons, L'Été, La Mémoire, Le Chemin, L'Île, Les Voix, La Dernière Heure
    """)
TITLE_TAILS = entries("""
    des absents, du phare, de Kerval, d'Orsenne, des marées, de la rue Basse, des oubliés, du moulin
    de Valmont, d'hiver, du notaire, des collines, de l'horloger, de Lisbonne, des corbeaux, du canal
    """)
FIRST_NAMES = entries("""
    Hélène, Camille, Bruno, Agnès, Olivier, Irène, Marc, Élise, Yann, Solange, Antoine, Nadia
    """)
LAST_NAMES = entries("""
    Varenne, Kerouan, Delmas, Aubry, Lestrade, Morvan, Escande, Fabre, Ostrowski, Berthier, Haddad, Roussel
    """)
CHARACTERS = entries("""
    une institutrice de Saint-Malo, un médecin de campagne, une archiviste à la retraite
    un horloger de Besançon, deux sœurs séparées par la guerre, une violoniste sans emploi
    un inspecteur muté à Dunkerque, une bergère des Cévennes, un marin revenu d'Islande
    trois amis d'enfance, une avocate de Lyon, un boulanger amnésique
    """)
PLOTS = entries("""
    face à un vieux secret de famille, à la recherche d'un manuscrit, après la disparition d'un voisin
    au lendemain d'un héritage, pendant un hiver sans fin, au cœur d'un procès
    sur les traces d'un père inconnu, au bord de la faillite, à la veille d'un long départ
    sur fond de trafic de tableaux, autour d'une maison à vendre, sous l'Occupation
    """)
OCCASIONS = entries("""
    pendant les vacances, dans le train, pour mon club de lecture, sur un coup de tête
    à l'occasion de sa sortie en poche, au lycée, après une longue attente, entre deux voyages
    sans rien savoir de l'auteur, un dimanche de pluie
    """)
OTHERS = entries("""
    la critique, mon libraire, la quatrième de couverture, ma voisine, la presse, mon club de lecture
    mon beau-frère, l'éditeur, le jury du prix
    """)
SUBJECTS = entries("ce livre, ce roman, l'ouvrage, l'ensemble, le récit, ce titre, le texte, cette histoire")
